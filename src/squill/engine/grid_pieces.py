"""Lifetimes cut at grid points: how many pieces begin up to a time, and where."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Int64s
from squill.errors import UnboundedResultError
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["MOST_PIECES", "expand", "last_grid_point", "next_grid_point"]

MOST_PIECES = 2**31
"""How many pieces may begin at one step of time: more do not fit into memory."""


def next_grid_point(times: Int64s, period: int, offset: int) -> Int64s:
    """Return the first offset + k·period after each time; infinity where that leaves the range of times."""
    rest = period - (times % period - offset % period) % period
    return times + np.minimum(rest, INFINITY - np.maximum(times, 0))


def last_grid_point(times: Int64s, period: int, offset: int) -> Int64s:
    """Return the last offset + k·period up to each time; minus infinity where that leaves the range of times."""
    rest = (times % period - offset % period) % period
    return times - np.minimum(rest, np.minimum(times, 0) - MINUS_INFINITY)


def expand(first: Int64s, last: Int64s, period: int, operator: str) -> tuple[Int64s, Int64s]:
    """Return every first + k·period ≤ last, and for each which row it belongs to.

    Rows with last < first have none.
    """
    # Unsigned: the distance of two times may have 64 bits.
    distance = last.astype(np.uint64) - first.astype(np.uint64)
    counts = np.where(last >= first, distance // np.uint64(period) + np.uint64(1), np.uint64(0))
    # In floating point, as the sum of these may have more than 64 bits.
    pieces = counts.sum(dtype=np.float64)
    if pieces > MOST_PIECES:
        raise UnboundedResultError(
            f"{operator}: a step of time from {first.min()} to {last.max()} has {pieces:.3g} pieces "
            f"of {period} ticks, the most that are made at once are {MOST_PIECES:,}",
            "limit the events with clip(…) or with_duration(…) before, or use a longer period.",
        )
    counts = counts.astype(np.int64)
    rows = np.repeat(np.arange(len(first)), counts)
    ends = np.cumsum(counts)
    step = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return first[rows] + step * period, rows
