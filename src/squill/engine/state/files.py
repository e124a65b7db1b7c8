"""State files: parts one after the other, each whole blocks long and with a checksum of all its bytes.

A part is filled up with zeros to whole blocks, and the zeros belong to what is checked: no byte of a file can
change unseen. Memory is read once: a block is hashed on its way to the buffer that is written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.columns import read_only
from squill.engine.state.direct import BufferedFile
from squill.engine.state.kernels.blocks import WORDS, copy_blocks, gather_blocks
from squill.errors import CheckpointError

__all__ = ["BLOCK", "Blocks", "Part", "Patch", "StateFile", "locked", "sync_folder", "torn"]

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]

BLOCK = 8 * WORDS
PIECE = 8 * 1024 * 1024
"""How much is hashed at a time."""
NO_HASHES: Words = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes in a file."""

    file: str
    offset: int
    size: int
    checksum: int

    @property
    def stored(self) -> int:
        return -(-self.size // BLOCK) * BLOCK


@dataclass(frozen=True, slots=True)
class Patch:
    """Changed blocks in a file: their numbers as int32, then their contents."""

    file: str
    offset: int
    blocks: int
    checksum: int

    @property
    def numbers_stored(self) -> int:
        return -(-4 * self.blocks // BLOCK) * BLOCK

    @property
    def stored(self) -> int:
        return self.numbers_stored + self.blocks * BLOCK


class Blocks:
    """An array's bytes as whole blocks, in place, and the last one, filled up with zeros."""

    def __init__(self, array: Array) -> None:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if flat.ctypes.data % 8:
            flat = flat.copy()
        self.size = len(flat)
        self.count = -(-self.size // BLOCK)
        whole = self.size // BLOCK * BLOCK
        self.words: Words = read_only(flat[:whole].view(np.uint64))
        self.tail: Words = np.zeros(WORDS, np.uint64)
        self.tail.view(np.uint8)[: self.size - whole] = flat[whole:]
        self.tail = read_only(self.tail)

    @property
    def has_tail(self) -> bool:
        return self.count * WORDS > len(self.words)

    def pieces(self) -> Iterator[Words]:
        """Yield all blocks, so much at a time as is hashed together."""
        for first in range(0, len(self.words), PIECE // 8):
            yield self.words[first : first + PIECE // 8]
        if self.has_tail:
            yield self.tail


class StateFile:
    """A file of parts, written from its beginning to its end; `is_long` when it is likely to hold everything."""

    def __init__(self, folder: Path, name: str, seed: int, *, is_long: bool) -> None:
        self.name = name
        self._seed = np.uint64(seed)
        self._file = BufferedFile(folder / name, is_long=is_long)

    @property
    def size(self) -> int:
        return self._file.size

    def add(self, blocks: Blocks, hashes: Words = NO_HASHES) -> Part:
        """Write all blocks; their hashes are written to `hashes` where it has room for them."""
        offset = self.size
        checksum = self._add(blocks.words, self._seed, hashes)
        if blocks.has_tail:
            checksum = self._add(blocks.tail, checksum, hashes[len(blocks.words) // WORDS :])
        return Part(self.name, offset, blocks.size, int(checksum))

    def add_pieces(self, pieces: Iterable[Words], size: int) -> Part:
        """Write whole blocks, of which the first `size` bytes count."""
        offset, checksum = self.size, self._seed
        for piece in pieces:
            checksum = self._add(piece, checksum)
        return Part(self.name, offset, size, int(checksum))

    def add_patch(self, blocks: Blocks, changed: npt.NDArray[np.int32]) -> Patch:
        """Write the blocks of these numbers."""
        numbers = self.add(Blocks(changed))
        checksum, first = np.uint64(numbers.checksum), 0
        while first < len(changed):
            room = self._file.room((len(changed) - first) * WORDS)
            some = read_only(changed[first : first + len(room) // WORDS])
            checksum = np.uint64(gather_blocks(blocks.words, blocks.tail, some, self._seed, checksum, room))
            first += len(some)
        return Patch(self.name, numbers.offset, len(changed), int(checksum))

    def _add(self, words: Words, checksum: np.uint64, hashes: Words = NO_HASHES) -> np.uint64:
        first = 0
        while first < len(words):
            room = self._file.room(len(words) - first)
            last = first + len(room)
            places = hashes[first // WORDS : last // WORDS]
            checksum = np.uint64(copy_blocks(words[first:last], self._seed, checksum, places, room))
            first = last
        return checksum

    def finish(self) -> None:
        """Bring the file to the disk."""
        self._file.finish()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.abandon()


def sync_folder(folder: Path) -> None:
    """Bring the folder's list of names to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes, and other runs in this one, from making a checkpoint here count meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        # File systems without locks are left to the check that the folder holds what this run expects.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def torn(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint in {str(path.parent)!r} is damaged: {path.name} {what}",
        "use another checkpoint; nothing was read from this one.",
    )
