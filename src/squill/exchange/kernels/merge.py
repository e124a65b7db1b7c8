"""Loops that put sorted runs into one order."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["merge_neighbours"]

Array = npt.NDArray[Any]


@kernel
def merge_neighbours(times: Array, rows: Array, bounds: Array, new_times: Array, new_rows: Array) -> None:
    """One round of a cascading binary merge: every two neighbouring runs become one.

    Run r is ``[bounds[r], bounds[r + 1])`` and sorted by time; `rows` goes along. Of equal times the earlier
    run's come first. A last run without a partner is copied.
    """
    last = len(bounds) - 1
    for first in range(0, last, 2):
        left = bounds[first]
        middle = bounds[first + 1]
        end = bounds[min(first + 2, last)]
        right = middle
        for at in range(left, end):
            if left < middle and (right == end or times[left] <= times[right]):
                new_times[at] = times[left]
                new_rows[at] = rows[left]
                left += 1
            else:
                new_times[at] = times[right]
                new_rows[at] = rows[right]
                right += 1
