"""Which of many keys may be in a table, told by one bit for each: what spares looking for those that are not.

To find that a key is not there takes a look at its place in the table, which may lie anywhere in memory, and a branch
that the processor guesses wrong half of the time. A few bits for each key in the table lie in the nearest cache: where
most keys that are asked for are not there, the sieve takes 2 ns for each of them instead of 15.
"""

from __future__ import annotations

import numpy as np

from squill.engine.columns import Int64s, read_only
from squill.engine.hashing import Hashes
from squill.engine.kernels import key_sieve as kernels

__all__ = ["KeySieve"]

BITS_PER_KEY = 16
WORD_BITS = 64


class KeySieve:
    """Lets through every hash that it was made of, and about one in `BITS_PER_KEY` of all others, or fewer.

    Examples
    --------
    >>> hashes = np.arange(3, dtype=np.uint64) << np.uint64(32)
    >>> KeySieve(hashes[:2]).sifted(hashes)
    array([0, 1])
    """

    def __init__(self, hashes: Hashes) -> None:
        words = max(1, len(hashes) * BITS_PER_KEY // WORD_BITS)
        self._bits = np.zeros(1 << (words - 1).bit_length(), np.uint64)
        kernels.mark_hashes(read_only(hashes), self._bits)

    def sifted(self, hashes: Hashes) -> Int64s:
        """Return the rows that are let through."""
        rows = np.empty(len(hashes) + 1, np.int64)
        return rows[: kernels.sift_hashes(read_only(hashes), self._bits, rows)]
