"""Large arrays whose memory is used again: pages fresh from the system are slow to write to.

The system clears every page when it is first written to, at 5 GB/s at best, and the kernel of a virtual machine may
have given it away in the meantime, so that it comes back at 0.3 GB/s (measured). An allocator gives arrays above some
megabytes back at once. So those made here return to a pool when nobody refers to them any more, be it a view, a Series
or the answer in a user's hands, and the next ones are made of them.

What the pool holds is bounded: by 512 MB and a thirty-second of the machine's memory, by less where many processes
share a machine (`keep_at_most`). What is more is *offered* to the system, up to an eighth of the machine's memory: the
system takes it when it is short of memory, and until then it can be used again as it is. Each block is a mapping of its
own, so that what is more than that goes back at once. An allocator would keep it wherever something small lies behind
it: 5 GB, after answers of 2 GB.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.machine_memory import machine_memory
from squill.polars_memory import KEEP_ENVIRONMENT_VARIABLE

__all__ = ["keep_at_most", "large_array", "offered_by_each"]

LEAST_BYTES = 1 << 20
"""Smaller arrays are the allocator's: it has them at hand."""
MOST_KEPT = 512 << 20
KEPT_SHARE, OFFERED_SHARE = 32, 8
"""Of the machine's memory, the part that is kept at most, and the part that is offered."""
HUGE_PAGES_FROM = 4 << 20
"""From here on the system is asked for pages of megabytes, as numpy asks it."""
SLACK = 2
"""A block may be so many times as large as what is asked for."""

Array = npt.NDArray[Any]
Block = npt.NDArray[np.uint8]


def large_array(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return an array that holds anything.

    Examples
    --------
    >>> large_array((3, 2), np.int64).shape
    (3, 2)
    """
    wanted = np.dtype(dtype)
    needed = (shape if isinstance(shape, int) else math.prod(shape)) * wanted.itemsize
    if needed < LEAST_BYTES or os.environ.get(KEEP_ENVIRONMENT_VARIABLE) == "0":
        return np.empty(shape, wanted)
    return _pool.take(needed)[:needed].view(wanted).reshape(shape)


def keep_at_most(size: int, offered: int = 0) -> None:
    """Let this process hold so many bytes for later arrays, if it would hold more, and so many that are offered."""
    _pool.kept_bytes = min(_pool.kept_bytes, size)
    _pool.offered_bytes = min(_pool.offered_bytes, offered)


def offered_by_each(processes: int) -> int:
    """Return how many bytes each of so many processes on this machine may offer to the system."""
    return machine_memory() // OFFERED_SHARE // processes if hasattr(mmap, "MADV_FREE") else 0


class Pool:
    """Blocks of memory that were used and are not.

    Nobody ever waits for it: who finds it busy gets fresh memory, be it the very thread that is busy with it and has
    come to collect garbage.
    """

    def __init__(self, kept_bytes: int, offered_bytes: int = 0) -> None:
        self.kept_bytes = kept_bytes
        """How many bytes are held for later at most."""
        self.offered_bytes = offered_bytes
        """How many more are held that the system may take."""
        self._lock = threading.Lock()
        self._free: list[Block] = []
        """The one that came back last stands last."""
        self._offered: list[Block] = []
        """Those that came back before them."""
        self._returned: deque[Block] = deque()

    def take(self, needed: int) -> Block:
        """Return a block of at least so many bytes, which comes back when it and all its views are gone."""
        block = self._unless_busy(lambda: self._fitting(needed))
        if block is None:
            block = self._fresh(needed)
        # Views of an array refer to who owns the memory; as a buffer's they refer to this one, and live no longer.
        lent = np.frombuffer(block.data, np.uint8)
        weakref.finalize(lent, self._take_back, block).atexit = False
        return lent

    @property
    def free_bytes(self) -> int:
        """How many bytes are held now."""
        with self._lock:
            self._put_away()
            return _bytes(self._free) + _bytes(self._offered)

    def forget(self) -> None:
        """Hold nothing; a process that was forked from a busy one begins so."""
        self._lock = threading.Lock()
        self._free, self._offered, self._returned = [], [], deque()

    def _fresh(self, needed: int) -> Block:
        try:
            return _mapped(_rounded(needed))
        except (OSError, MemoryError):  # there is no more memory, or there are no more mappings
            self.forget()
            return np.empty(needed, np.uint8)

    def _take_back(self, block: Block) -> None:
        # One that is half of what may be held would drive out all others.
        if 2 * len(block) > max(self.kept_bytes, self.offered_bytes):
            return
        self._returned.append(block)
        self._unless_busy(lambda: None)

    def _unless_busy(self, find: Callable[[], Block | None]) -> Block | None:
        """Put away what has come back, and return what is found; None while somebody else does so."""
        lock = self._lock  # which may be another one when this is done
        if not lock.acquire(blocking=False):
            return None
        try:
            gone = self._put_away()
            found = find()
        finally:
            lock.release()
        del gone  # by now nobody finds the pool busy for it: to unmap takes a while, and lets others run
        return found

    # Another thread may `forget` at any moment, so each of these works on the lists that it has found.

    def _fitting(self, needed: int) -> Block | None:
        for held in (self._free, self._offered):
            fitting = [number for number, block in enumerate(held) if needed <= len(block) <= SLACK * needed]
            if fitting:
                return held.pop(min(fitting, key=lambda number: len(held[number])))
        return None

    def _put_away(self) -> list[Block]:
        """Add what has come back; return what is to go, where there is too much: what has been free for longest."""
        held, offered, returned = self._free, self._offered, self._returned
        while returned:
            held.append(returned.popleft())
        for block in _cut(held, self.kept_bytes):
            _offer(block)
            offered.append(block)
        return _cut(offered, self.offered_bytes)


def _bytes(blocks: Sequence[Block]) -> int:
    return sum(map(len, blocks))


def _cut(blocks: list[Block], most: int) -> list[Block]:
    """Take the first blocks away, so that those that are left have so many bytes at most; return them."""
    left, count = _bytes(blocks), 0
    while left > most:
        left -= len(blocks[count])
        count += 1
    taken = blocks[:count]
    del blocks[:count]
    return taken


def _offer(block: Block) -> None:
    """Let the system take the memory when it needs some; whatever is read of it after that, what is written stays."""
    memory = getattr(block.base, "obj", None)
    if isinstance(memory, mmap.mmap):
        with suppress(OSError):
            memory.madvise(mmap.MADV_FREE)


def _mapped(size: int) -> Block:
    """Return memory that goes back to the system with the last reference to it."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # not on this system
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _rounded(size: int) -> int:
    """Return at least `size`: an eighth of the power of two below it is the unit, so that sizes meet again."""
    unit = max(LEAST_BYTES // 4, 1 << max(size.bit_length() - 4, 0))
    return -(-size // unit) * unit


_pool = Pool(min(MOST_KEPT, machine_memory() // KEPT_SHARE), offered_by_each(1))
os.register_at_fork(after_in_child=_pool.forget)
