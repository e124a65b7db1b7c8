"""Loops that put sorted runs into one order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["interleave", "merge_neighbours"]

Array = npt.NDArray[Any]


@kernel
def merge_neighbours(times: Array, rows: Array, bounds: Array, new_times: Array, new_rows: Array) -> None:
    """One round of a cascading binary merge: every two neighbouring runs become one.

    Run r is ``[bounds[r], bounds[r + 1])`` and sorted by time; `rows` goes along. Of equal times the earlier
    run's come first. A last run without a partner is copied.
    """
    last = len(bounds) - 1
    for first in range(0, last, 2):
        _merge_two(
            times, rows, bounds[first], bounds[first + 1], bounds[min(first + 2, last)], new_times, new_rows
        )  # fmt: skip


@inlined
def _merge_two(times: Array, rows: Array, first: int, middle: int, end: int, new_times: Array, new_rows: Array) -> None:
    """Merge from both ends at once: two chains of steps that do not wait for each other.

    Which run is next is anybody's guess, so it is chosen by arithmetic and not by a branch: 1.6 ns a row instead
    of 6.4. Places are unsigned, because signed ones are asked whether they count from the end.
    """
    one = np.uint64(1)
    left, left_end = np.uint64(first), np.uint64(middle)
    right, right_end = np.uint64(middle), np.uint64(end)
    low, high = np.uint64(first), np.uint64(end)
    while left < left_end and right < right_end:
        # So many steps from either end meet neither each other nor the end of a run.
        for _ in range(min(left_end - left, right_end - right)):
            left_time, right_time = times[left], times[right]
            is_right = right_time < left_time
            new_times[low] = right_time if is_right else left_time
            new_rows[low] = rows[right if is_right else left]
            step = np.uint64(is_right)
            right += step
            left += one - step
            low += one

            left_time, right_time = times[left_end - one], times[right_end - one]
            is_right = right_time >= left_time
            high -= one
            new_times[high] = right_time if is_right else left_time
            new_rows[high] = rows[(right_end if is_right else left_end) - one]
            step = np.uint64(is_right)
            right_end -= step
            left_end -= one - step
    while left < left_end:
        new_times[low] = times[left]
        new_rows[low] = rows[left]
        left += one
        low += one
    while right < right_end:
        new_times[low] = times[right]
        new_rows[low] = rows[right]
        right += one
        low += one


@kernel
def interleave(rows: Array, left: Array, right: Array, out: Array) -> None:
    """Write the values of two runs in their merged order; `rows` are the left run's from 0 on, then the right one's.

    Each run is read from its first to its last value. Both next values are read and one is chosen by arithmetic: the
    last of a run is read again when there is no next one.
    """
    one = np.uint64(1)
    size = np.uint64(len(left))
    last_left, last_right = size - one, np.uint64(len(right)) - one
    i = j = np.uint64(0)
    for k in range(np.uint64(len(rows))):
        from_left, from_right = left[min(i, last_left)], right[min(j, last_right)]
        is_right = np.uint64(rows[k]) >= size
        out[k] = from_right if is_right else from_left
        step = np.uint64(is_right)
        j += step
        i += one - step
