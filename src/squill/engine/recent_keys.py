"""The slots of keys that were looked up lately, found without a hash.

Where a stream has few keys, nearly every row has one that was there a moment ago. An array that is read at bits of the
key itself gives a guess of its slot, and the word that the slot holds says whether it is right: 1.5 ns a row, where
hashing the key and probing for it take 4.
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
    >>> recent, words = RecentKeys(), np.array([70, 80])
    >>> recent.remember(np.array([80]), np.array([1], np.int32))
    >>> out = np.empty(3, np.int32)
    >>> recent.recall(np.array([80, 70, 80]), words, out), out
    (1, array([ 1, -1,  1], dtype=int32))
    """

    def __init__(self) -> None:
        self._slots = np.full(PLACES, -1, np.int32)

    def recall(self, keys: Int64s, words: Int64s, out: Slots) -> int:
        """Write each key's slot, or -1; `words` are the keys by slot. Return how many keys were not known."""
        missed: int = kernels.recall_words(read_only(keys), self._slots, words, out)
        return missed

    def remember(self, keys: Int64s, slots: Slots) -> None:
        """Enter keys; of those that share a place the last one has it."""
        kernels.remember_words(read_only(keys), read_only(slots), self._slots)

    def forget(self, slots: Slots, words: Int64s) -> None:
        """Leave out the keys of slots that are given back."""
        kernels.forget_words(read_only(slots), words, self._slots)
