"""A stored source cut into the parts that shards read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from squill.errors import InternalError
from squill.plan.nodes import FileSource, FrameSource, Source

__all__ = ["split_files", "split_rows", "splits_of"]


def splits_of(source: Source, shards: int) -> list[Source]:
    """Return the parts of a stored source, one per shard; some may be empty."""
    if isinstance(source, FrameSource):
        return [replace(source, frame=source.frame[low:high]) for low, high in split_rows(source.frame.height, shards)]
    if isinstance(source, FileSource):
        return [replace(source, paths=paths) for paths in split_files(source.paths, shards)]
    raise InternalError(f"{source.name} cannot be split")


def split_rows(rows: int, shards: int) -> list[tuple[int, int]]:
    """Return ranges of rows, in order, whose sizes differ by at most one.

    Examples
    --------
    >>> split_rows(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return [(rows * shard // shards, rows * (shard + 1) // shards) for shard in range(shards)]


def split_files(paths: Sequence[str], shards: int) -> list[tuple[str, ...]]:
    """Return the files of each shard: neighbours stay together, shares of bytes are about equal.

    Files are often in time order, and neighbours overlap least when shards' rows are merged.
    """
    sizes = [Path(path).stat().st_size for path in paths]
    total, before = max(sum(sizes), 1), 0
    chosen: list[list[str]] = [[] for _ in range(shards)]
    for path, size in zip(paths, sizes, strict=True):
        middle = before + size / 2
        chosen[min(int(middle * shards / total), shards - 1)].append(path)
        before += size
    return [tuple(files) for files in chosen]
