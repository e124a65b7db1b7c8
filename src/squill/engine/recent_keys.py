"""The slots of keys that were looked up lately, found without a hash.

Where a stream has few keys, nearly every row has one that was there a moment ago. Two arrays that are read at bits of
the key itself say which key was there last, and its slot: 1.2 ns a row, where hashing the key and probing take 4.
Rows that are only counted need no slot of their own: they are counted at that place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squill.engine.columns import Int64s, read_only
from squill.engine.kernels import recent_keys as kernels

__all__ = ["MOST_KEYS", "RecentKeys"]

MOST_KEYS = 4_096
"""With more keys than this too many would share a place."""

PLACES = 4 * MOST_KEYS

Slots = npt.NDArray[np.int32]


class RecentKeys:
    """A place for each of the keys that were remembered last; keys are single words, none of them null.

    Examples
    --------
    >>> recent = RecentKeys()
    >>> recent.remember(np.array([80]), np.array([1], np.int32))
    >>> out = np.empty(3, np.int32)
    >>> recent.recall(np.array([80, 70, 80]), out), out
    (1, array([ 1, -1,  1], dtype=int32))
    >>> recent.tally(np.array([80, 70, 80]))
    (array([1], dtype=int32), array([2]), array([1]))
    """

    def __init__(self) -> None:
        self._slots = np.full(PLACES, -1, np.int32)
        self._words = np.empty(PLACES, np.int64)
        kernels.nobodys_words(self._words)
        self._counts: Int64s | None = None

    def recall(self, keys: Int64s, out: Slots) -> int:
        """Write each key's slot, or -1; return how many keys were not known."""
        missed: int = kernels.recall_words(read_only(keys), self._words, self._slots, out)
        return missed

    def tally(self, keys: Int64s) -> tuple[Slots, Int64s, Int64s]:
        """Return the slots of known keys and how many rows each has, and the rows of the others."""
        if self._counts is None:
            self._counts = np.zeros((PLACES, 2), np.int64)
        missed = np.empty(len(keys), np.int64)
        others = kernels.tally_words(read_only(keys), self._words, self._counts, missed)
        slots, counts = np.empty(PLACES, np.int32), np.empty(PLACES, np.int64)
        found = kernels.tallied_places(self._slots, self._counts, slots, counts)
        return slots[:found], counts[:found], missed[:others]

    def remember(self, keys: Int64s, slots: Slots) -> None:
        """Enter keys; of those that share a place the last one has it."""
        kernels.remember_words(read_only(keys), read_only(slots), self._words, self._slots)

    def forget(self, slots: Slots, words: Int64s) -> None:
        """Leave out the keys of slots that are given back; `words` are the keys by slot."""
        kernels.forget_words(read_only(slots), words, self._words, self._slots)
