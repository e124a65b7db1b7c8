"""Loops over the slots of keys that were looked up lately."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import always_inlined, kernel

__all__ = ["forget_words", "nobodys_words", "recall_words", "remember_words", "tallied_places", "tally_words"]

Array = npt.NDArray[Any]

U1, U14, U32, U63 = np.uint64(1), np.uint64(14), np.uint64(32), np.uint64(63)


@always_inlined
def place_of(key: np.int64, last: np.uint64) -> np.uint64:
    """Return the place of a key among `last` + 1, a power of two.

    Numbers that follow one another lie side by side, and so few cache lines are read; those that differ in high bits
    only, as floats and multiples of a power of two do, lie apart too.
    """
    word = np.uint64(key)
    word ^= word >> U32
    return (word ^ (word >> U14)) & last


@always_inlined
def nobodys_word(place: np.uint64) -> np.int64:
    """Return a word that has another place: so a place without a key need not be told from others."""
    return np.int64(1) if place == np.uint64(0) else np.int64(0)


@kernel
def nobodys_words(words: Array) -> None:
    """Let no place have a key."""
    for place in range(len(words)):
        words[place] = nobodys_word(np.uint64(place))


@kernel
def recall_words(keys: Array, words: Array, slots: Array, out: Array) -> np.int64:
    """Write each key's slot, or -1 where it is not known; return how many are not."""
    last = np.uint64(len(slots) - 1)
    missed = np.int64(0)
    for i in range(len(out)):
        place = place_of(keys[i], last)
        slot = np.int64(slots[place]) if words[place] == keys[i] else np.int64(-1)
        out[i] = slot
        missed += np.int64(np.uint64(slot) >> U63)
    return missed


@kernel
def tally_words(keys: Array, words: Array, counts: Array, missed: Array) -> np.int64:
    """Count each known key at its place, in two columns; write the rows of the others, and return how many there are.

    Rows take turns with the columns: to add to a number again just after it was written takes several times as long.
    """
    last = np.uint64(len(words) - 1)
    n = 0
    for i in range(len(keys)):
        place = place_of(keys[i], last)
        if words[place] == keys[i]:
            counts[place, np.uint64(i) & U1] += 1
        else:
            missed[n] = i
            n += 1
    return n


@kernel
def tallied_places(slots: Array, counts: Array, out_slots: Array, out_counts: Array) -> np.int64:
    """Write the slots and counts of the places where there are any, and empty them; return how many there are."""
    n = 0
    for place in range(len(slots)):
        count = counts[place, 0] + counts[place, 1]
        if count > 0:
            out_slots[n], out_counts[n] = slots[place], count
            counts[place, 0], counts[place, 1] = 0, 0
            n += 1
    return n


@kernel
def remember_words(keys: Array, new_slots: Array, words: Array, slots: Array) -> None:
    """Enter keys that have a slot."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(keys)):
        if new_slots[i] >= 0:
            place = place_of(keys[i], last)
            words[place], slots[place] = keys[i], new_slots[i]


@kernel
def forget_words(given: Array, words_by_slot: Array, words: Array, slots: Array) -> None:
    """Leave out slots that are given back; the caller has checked them."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(given)):
        place = place_of(words_by_slot[np.uint64(given[i])], last)
        if slots[place] == given[i]:
            words[place], slots[place] = nobodys_word(place), -1
