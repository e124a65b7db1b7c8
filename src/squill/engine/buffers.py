"""Growable arrays that keep what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["grown", "room_for"]

Array = npt.NDArray[Any]


def room_for(size: int) -> int:
    """Return the power of two that holds `size`, at least 16."""
    return max(16, 1 << (max(size, 1) - 1).bit_length())


def grown(array: Array, size: int, fill: int | None = 0) -> Array:
    """Return `array` with at least `size` rows; the same object if it has them.

    New rows hold `fill`, or anything with None: memory that is not written costs nothing.
    """
    if len(array) >= size:
        return array
    bigger = np.empty((room_for(size), *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    if fill is not None:
        bigger[len(array) :] = fill
    return bigger
