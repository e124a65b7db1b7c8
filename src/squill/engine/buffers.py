"""Growable arrays that keep what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.large_arrays import large_array

__all__ = ["Scratch", "grown", "room_for", "trimmed"]

Array = npt.NDArray[Any]


def room_for(size: int) -> int:
    """Return the power of two that holds `size`, at least 16."""
    return max(16, 1 << (max(size, 1) - 1).bit_length())


def grown(array: Array, size: int, fill: int | None = 0) -> Array:
    """Return `array` with at least `size` rows; the same object if it has them.

    New rows hold `fill`, or anything with None.
    """
    if len(array) >= size:
        return array
    bigger = large_array((room_for(size), *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    if fill is not None:
        bigger[len(array) :] = fill
    return bigger


def trimmed(array: Array, size: int) -> Array:
    """Return the first rows, in an array of their own where they are less than half of it.

    Examples
    --------
    >>> trimmed(np.arange(4), 1).base is None, trimmed(np.arange(4), 2).base is None
    (True, False)
    """
    if 2 * size >= len(array):
        return array[:size]
    own = large_array((size, *array.shape[1:]), array.dtype)
    own[:] = array[:size]
    return own


class Scratch:
    """Arrays that are needed again and again: memory that the process has just got is slow to write to.

    Examples
    --------
    >>> scratch = Scratch()
    >>> np.shares_memory(scratch.take("rows", 20, np.int32), scratch.take("rows", 10, np.int32))
    True
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def take(self, name: str, size: int, dtype: npt.DTypeLike) -> Array:
        """Return `size` items that hold anything; what was taken under this name before is taken back."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            array = self._arrays[name] = np.empty(room_for(size), dtype)
        return array[:size]
