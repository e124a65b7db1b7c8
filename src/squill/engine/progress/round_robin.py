"""The numbers of rows that splits give in turn, each one row at a time, as long as it has any.

Splits of one length make it j·S + s for row j of split s of S. Where some are over before others the rest go on
without them, so that there are no gaps: all numbers from 0 up to the number of rows are given, each once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from squill.engine.batch import Int64s

__all__ = ["RoundRobin", "fraction_steps", "round_robin"]


class RoundRobin:
    """Numbers for rows of splits of these lengths.

    Examples
    --------
    >>> turns = RoundRobin((3, 1, 2))
    >>> [turns.numbers(split, np.arange(length)).tolist() for split, length in enumerate((3, 1, 2))]
    [[0, 3, 5], [1], [2, 4]]
    """

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._lengths = np.array(lengths, np.int64)
        self._sorted = np.sort(self._lengths)
        self._rows_of_shortest = np.concatenate([[0], np.cumsum(self._sorted)])

    def numbers(self, split: int, rows: Int64s) -> Int64s:
        """Return the numbers of these rows of a split: how many rows of all splits have had their turn before."""
        over = np.searchsorted(self._sorted, rows, side="right")
        before: Int64s = self._rows_of_shortest[over] + (len(self._sorted) - over) * rows
        earlier_over = np.searchsorted(np.sort(self._lengths[:split]), rows, side="right")
        return before + split - earlier_over


@lru_cache(maxsize=64)
def round_robin(lengths: tuple[int, ...]) -> RoundRobin:
    """Return the numbers for splits of these lengths; made once."""
    return RoundRobin(lengths)


def fraction_steps(rows: Int64s, length: int, steps: int, split: int, splits: int) -> Int64s:
    """Return at which of the steps rows of a split of this length come: (row + split / splits) · steps / length.

    So a split has as many rows at each step, and small ones do not all begin at the first.

    Examples
    --------
    >>> fraction_steps(np.arange(4), 4, 2, 0, 1).tolist()
    [0, 0, 1, 1]
    >>> [fraction_steps(np.arange(1), 1, 2, split, 4).tolist() for split in range(4)]
    [[0], [0], [1], [1]]
    """
    whole, rest = np.divmod(rows * steps, max(length, 1))
    found: Int64s = whole + (rest * splits + split * steps) // (max(length, 1) * splits)
    return found
