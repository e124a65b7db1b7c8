"""Loops over the slots of keys that were looked up lately."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import always_inlined, kernel

__all__ = ["forget_words", "recall_words", "remember_words"]

Array = npt.NDArray[Any]

U14, U32, U63 = np.uint64(14), np.uint64(32), np.uint64(63)


@always_inlined
def place_of(key: np.int64, last: np.uint64) -> np.uint64:
    """Return the place of a key among `last` + 1, a power of two.

    Numbers that follow one another lie side by side, and so few cache lines are read; those that differ in high bits
    only, as floats and multiples of a power of two do, lie apart too.
    """
    word = np.uint64(key)
    word ^= word >> U32
    return (word ^ (word >> U14)) & last


@kernel
def recall_words(keys: Array, slots: Array, words: Array, out: Array) -> np.int64:
    """Write each key's slot, or -1 where it is not known; return how many are not."""
    last = np.uint64(len(slots) - 1)
    missed = np.int64(0)
    for i in range(len(out)):
        slot = np.int64(slots[place_of(keys[i], last)])
        # Without a branch: where nothing is known slot 0 is looked at, and -1 stays -1.
        if words[np.uint64(max(slot, np.int64(0)))] != keys[i]:
            slot = np.int64(-1)
        out[i] = slot
        missed += np.int64(np.uint64(slot) >> U63)
    return missed


@kernel
def remember_words(keys: Array, new_slots: Array, slots: Array) -> None:
    """Enter keys that have a slot."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(keys)):
        if new_slots[i] >= 0:
            slots[place_of(keys[i], last)] = new_slots[i]


@kernel
def forget_words(given: Array, words: Array, slots: Array) -> None:
    """Leave out slots that are given back; the caller has checked them."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(given)):
        place = place_of(words[np.uint64(given[i])], last)
        if slots[place] == given[i]:
            slots[place] = -1
