"""A file written from its beginning to its end, past the system's page cache where the disk allows it.

Through the cache a gigabyte is copied into pages that have to be found first, which takes as long as the disk itself
and drives out what others read; nobody reads a checkpoint while the query runs. So bytes are gathered in a few
aligned buffers, which two threads write while the next one is filled: the disk always has the next write at hand,
and as its place is allocated ahead, the file system lets two of them into one file. Where it refuses direct writes
(some in memory or over a network do), the same writes go through the cache.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["BUFFER", "BufferedFile"]

Words = npt.NDArray[np.uint64]

BUFFER = 8 * 1024 * 1024
"""Bytes in a buffer, and in a write: with 2 MB the disk was a quarter slower, with 32 MB no faster."""
PAGE = 4096
"""What direct writes are multiples of; no disk asks for more."""
SHORT = 32 * 1024 * 1024
"""A file that may end before this begins in the cache, which takes 16 MB in a third of the time."""
WRITERS = 2
WAITING = 3
"""Full buffers that are written or wait for it."""
AHEAD = 256 * 1024 * 1024
"""How much is allocated ahead at most; until then as much as is written."""
DIRECT = getattr(os, "O_DIRECT", 0)


class BufferedFile:
    """Gives out room for the next bytes, and writes what was put there."""

    def __init__(self, path: Path, *, is_long: bool) -> None:
        self.size = 0
        self._direct_from = BUFFER if is_long else SHORT
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._direct: int | None = None
        self._may_be_direct = bool(DIRECT)
        self._allocated = 0
        self._writers = ThreadPoolExecutor(WRITERS, "squill-write")  # its threads start with the first full buffer
        self._under_way: deque[Future[Words]] = deque()
        self._buffer = _aligned()
        self._filled = 0

    def room(self, words: int) -> Words:
        """Return the memory of the next words, `words` at most and at least one; they are to be put there at once."""
        if self._filled == len(self._buffer):
            self._submit()
        given = self._buffer[self._filled : self._filled + words]
        self._filled += len(given)
        self.size += given.nbytes
        return given

    def finish(self) -> None:
        """Bring the file to the disk."""
        rest = self._buffer[: self._filled]
        self._write(rest, self.size - rest.nbytes, self._direct)
        while self._under_way:
            self._under_way.popleft().result()
        if self._allocated > self.size:
            os.ftruncate(self._file, self.size)
        os.fsync(self._file)
        self._close()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._close()
        self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        self._writers.shutdown()
        files, self._file, self._direct = (self._file, self._direct), -1, None
        for file in files:
            if file is not None and file >= 0:
                os.close(file)

    def _submit(self) -> None:
        if self.size >= self._direct_from:
            self._open_direct()
            self._allocate()
        self._under_way.append(self._writers.submit(self._write, self._buffer, self.size - BUFFER, self._direct))
        self._buffer = self._under_way.popleft().result() if len(self._under_way) > WAITING else _aligned()
        self._filled = 0

    def _open_direct(self) -> None:
        if self._may_be_direct and self._direct is None:
            try:
                self._direct = os.open(self._path, os.O_WRONLY | DIRECT)
            except OSError:
                self._may_be_direct = False

    def _allocate(self) -> None:
        if self._may_be_direct and 0 <= self._allocated < self.size:
            end = self.size + min(self.size, AHEAD)
            is_done = _fallocate()(self._file, 0, self._allocated, end - self._allocated) == 0
            self._allocated = end if is_done else -1

    def _write(self, words: Words, offset: int, direct: int | None) -> Words:
        rest = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
        while rest:
            count = self._write_direct(rest, offset, direct) or os.pwrite(self._file, rest, offset)
            rest, offset = rest[count:], offset + count
        return words

    def _write_direct(self, rest: memoryview, offset: int, direct: int | None) -> int:
        """Return how much went straight to the disk, which is nothing where that cannot be."""
        whole = len(rest) // PAGE * PAGE
        if direct is None or not self._may_be_direct or not whole or offset % PAGE:
            return 0
        try:
            return os.pwrite(direct, rest[:whole], offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._may_be_direct = False
            return 0


def _aligned() -> Words:
    """Return a buffer that begins with a page; pages that are never written to take no memory."""
    return np.frombuffer(mmap.mmap(-1, BUFFER), np.uint64)


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """Return the system's call. That of Python writes zeros where the file system cannot allocate."""
    try:
        call = ctypes.CDLL(None).fallocate64
    except (AttributeError, OSError):
        return lambda *_: -1
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call
