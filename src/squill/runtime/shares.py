"""Items of different sizes, shared out among shards."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["dealt", "neighbours", "split_rows"]


def dealt(sizes: Sequence[int], shards: int) -> list[list[int]]:
    """Return which items each shard gets: one after the other to the shard that has least so far.

    Items of one size go to the shards in turn.

    Examples
    --------
    >>> dealt([1, 1, 1, 1, 1], 2), dealt([5, 1, 1, 1, 4], 2)
    ([[0, 2, 4], [1, 3]], [[0], [1, 2, 3, 4]])
    """
    chosen: list[list[int]] = [[] for _ in range(shards)]
    loads = [0] * shards
    for number, size in enumerate(sizes):
        least = loads.index(min(loads))
        chosen[least].append(number)
        loads[least] += size
    return chosen


def split_rows(rows: int, shards: int) -> list[tuple[int, int]]:
    """Return ranges of rows, in order, whose sizes differ by at most one.

    Examples
    --------
    >>> split_rows(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return [(rows * shard // shards, rows * (shard + 1) // shards) for shard in range(shards)]


def neighbours(sizes: Sequence[int], shards: int) -> list[list[int]]:
    """Return which items each shard gets, where neighbours stay together and shares are about equal."""
    total, before = max(sum(sizes), 1), 0
    chosen: list[list[int]] = [[] for _ in range(shards)]
    for number, size in enumerate(sizes):
        middle = before + size / 2
        chosen[min(int(middle * shards / total), shards - 1)].append(number)
        before += size
    return chosen
