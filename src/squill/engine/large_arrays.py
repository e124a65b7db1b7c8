"""Large arrays whose memory is used again: pages fresh from the system are slow to write to.

The system clears every page when it is first written to, at 5 GB/s at best, and the kernel of a virtual machine may
have given it away in the meantime, so that it comes back at 0.3 GB/s (measured). An allocator gives arrays above some
megabytes back at once. So those made here return to a pool when nobody refers to them any more, be it a view, a Series
or the answer in a user's hands, and the next ones are made of them.

What the pool holds is bounded by `KEPT_BYTES`; nothing is held that was never used.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["KEEP_ENVIRONMENT_VARIABLE", "large_array"]

KEEP_ENVIRONMENT_VARIABLE = "SQUILL_KEEP_MEMORY"
"""Set to 0, freed memory is not kept for later arrays."""

LEAST_BYTES = 1 << 20
"""Smaller arrays are the allocator's: it has them at hand."""
KEPT_BYTES = min(512 << 20, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 32)
SLACK = 2
"""A block may be so many times as large as what is asked for."""

Array = npt.NDArray[Any]
Block = npt.NDArray[np.uint8]


def large_array(size: int, dtype: npt.DTypeLike) -> Array:
    """Return `size` items that hold anything.

    Examples
    --------
    >>> large_array(3, np.int64).shape
    (3,)
    """
    wanted = np.dtype(dtype)
    needed = size * wanted.itemsize
    if needed < LEAST_BYTES or os.environ.get(KEEP_ENVIRONMENT_VARIABLE) == "0":
        return np.empty(size, wanted)
    return _pool.take(needed)[:needed].view(wanted)


class Pool:
    """Blocks of memory that were used and are not."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = kept_bytes
        self._lock = threading.Lock()
        self._free: list[Block] = []
        """The one that came back last stands last."""
        # Blocks come back when the last array dies, on whatever thread, perhaps while that very thread has the lock.
        self._returned: deque[Block] = deque()

    def take(self, needed: int) -> Block:
        """Return a block of at least so many bytes, which comes back when it and all its views are gone."""
        with self._lock:
            self._put_away()
            block = self._fitting(needed)
        if block is None:
            block = np.empty(_rounded(needed), np.uint8)
        # Views of an array refer to who owns the memory; as a buffer's they refer to this one, and live no longer.
        lent = np.frombuffer(block.data, np.uint8)
        weakref.finalize(lent, self._take_back, block).atexit = False
        return lent

    @property
    def kept_bytes(self) -> int:
        """How many bytes are held for later."""
        with self._lock:
            self._put_away()
            return sum(map(len, self._free))

    def _take_back(self, block: Block) -> None:
        self._returned.append(block)
        if self._lock.acquire(blocking=False):
            try:
                self._put_away()
            finally:
                self._lock.release()

    def _fitting(self, needed: int) -> Block | None:
        fitting = [number for number, block in enumerate(self._free) if needed <= len(block) <= SLACK * needed]
        if not fitting:
            return None
        return self._free.pop(min(fitting, key=lambda number: len(self._free[number])))

    def _put_away(self) -> None:
        """Add what has come back; what has been free for longest goes when there is too much."""
        while self._returned:
            self._free.append(self._returned.popleft())
        kept = sum(map(len, self._free))
        while kept > self._most:
            kept -= len(self._free.pop(0))


def _rounded(size: int) -> int:
    """Return at least `size`: an eighth of the power of two below it is the unit, so that sizes meet again."""
    unit = max(LEAST_BYTES // 4, 1 << max(size.bit_length() - 4, 0))
    return -(-size // unit) * unit


_pool = Pool()
