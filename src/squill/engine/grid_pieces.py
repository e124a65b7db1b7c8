"""Lifetimes cut at grid points: how many pieces begin up to a time, and where."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Int64s
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["expand", "last_grid_point", "next_grid_point"]


def next_grid_point(times: Int64s, period: int, offset: int) -> Int64s:
    """Return the first offset + k·period after each time; infinity where that leaves the range of times."""
    rest = period - (times % period - offset % period) % period
    return times + np.minimum(rest, INFINITY - np.maximum(times, 0))


def last_grid_point(times: Int64s, period: int, offset: int) -> Int64s:
    """Return the last offset + k·period up to each time; minus infinity where that leaves the range of times."""
    rest = (times % period - offset % period) % period
    return times - np.minimum(rest, np.minimum(times, 0) - MINUS_INFINITY)


def expand(first: Int64s, last: Int64s, period: int) -> tuple[Int64s, Int64s]:
    """Return every first + k·period ≤ last, and for each which row it belongs to.

    Rows with last < first have none.
    """
    # Unsigned: the distance of two times may have 64 bits.
    distance = last.astype(np.uint64) - first.astype(np.uint64)
    counts = np.where(last >= first, (distance // np.uint64(period)).astype(np.int64) + 1, 0)
    rows = np.repeat(np.arange(len(first)), counts)
    ends = np.cumsum(counts)
    step = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return first[rows] + step * period, rows
