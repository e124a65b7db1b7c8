"""Where the bytes of Arrow's string views lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import kernel

__all__ = ["view_ranges"]

Array = npt.NDArray[Any]

LONGEST_INSIDE = 12
"""A view of up to so many bytes holds them itself, behind the length."""
LOW_HALF = 0xFFFFFFFF


@kernel
def view_ranges(views: Array, valid: Array, first: int, buffers: Array, starts: Array, lengths: Array) -> None:
    """Write where the bytes of each view begin, and how many they are; none under nulls.

    A view is two words: the length in the low half of the one, and of the other the buffer's number, and above it where
    in the buffer the bytes begin. The first view is at `first`, the buffers begin at `buffers`.
    """
    for i in range(len(starts)):
        length = views[u(2 * i)] & LOW_HALF
        start = first + 16 * i + 4
        if valid[u(i)] == 0:
            length = 0  # nobody says what the view is
        elif length > LONGEST_INSIDE:
            place = np.uint64(views[u(2 * i + 1)])
            start = buffers[place & u(LOW_HALF)] + np.int64(place >> u(32))
        starts[u(i)] = start
        lengths[u(i)] = length
