"""Loops over keys that come in order: a merge instead of a search for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["is_ascending", "merge_ascending"]

Array = npt.NDArray[Any]
BLOCK = 1_024


@kernel
def is_ascending(values: Array, strictly: bool) -> bool:
    """Say whether no value is below the one before it, nor, `strictly`, equal to it."""
    for begin in range(0, len(values) - 1, BLOCK):
        end = min(begin + BLOCK, len(values) - 1)
        before, after = values[begin:end], values[begin + 1 : end + 1]
        falls = equals = 0
        # Without a way out in the middle the comparisons are made many at a time.
        for i in range(len(before)):
            falls += after[i] < before[i]
            equals += after[i] == before[i]
        if falls or (strictly and equals):
            return False
    return True


@kernel
def merge_ascending(asked: Array, keys: Array, rows: Array, places: Array) -> np.int64:
    """Write the rows of `asked` that are among the `keys`, and where there; return how many. All have room.

    Both ascend, the keys without equal ones. A row is written in any case, and kept where it is found.
    """
    n = np.uint64(0)
    one = np.uint64(1)
    place, last = np.uint64(0), np.uint64(len(keys) - 1)
    for i in range(np.uint64(len(asked))):
        value = asked[i]
        while place < last and keys[place] < value:
            place += one
        rows[n] = i
        places[n] = place
        n += np.uint64(keys[place] == value)
    return np.int64(n)
