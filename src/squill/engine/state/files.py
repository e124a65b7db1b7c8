"""State files: parts one after the other, each whole blocks long and with a checksum of all its bytes.

A part is filled up with zeros to whole blocks, and the zeros belong to what is checked: no byte of a file can
change unseen. Parts are written straight from the memory they lie in.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.columns import read_only
from squill.engine.state.kernels.blocks import WORDS, gather_blocks, hash_blocks, put_blocks
from squill.errors import CheckpointError

__all__ = ["BLOCK", "Blocks", "Part", "Patch", "StateFile", "StateFiles", "sync_folder", "torn"]

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]

BLOCK = 8 * WORDS
PIECE = 8 * 1024 * 1024
"""How much is hashed and written at a time: the hash leaves the bytes in the cache for the system to copy."""
LARGE = 1024 * 1024
"""From here on a piece is written by a thread."""
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
        """Yield all blocks, so much at a time as is hashed and written together."""
        for first in range(0, len(self.words), PIECE // 8):
            yield self.words[first : first + PIECE // 8]
        if self.has_tail:
            yield self.tail


def _gathered(blocks: Blocks, changed: npt.NDArray[np.int32]) -> Iterator[Words]:
    for first in range(0, len(changed), PIECE // BLOCK):
        some = read_only(changed[first : first + PIECE // BLOCK])
        content = np.empty(len(some) * WORDS, np.uint64)
        gather_blocks(blocks.words, blocks.tail, some, content)
        yield read_only(content)


class StateFile:
    """A file that is written from its beginning to its end."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.name = name
        self.size = 0
        self._path = folder / name
        self._seed = np.uint64(seed)
        self._file = self._path.open("wb", buffering=0)
        self._writer = ThreadPoolExecutor(1, "squill-write")  # its thread starts with the first large piece
        self._under_way: Future[None] | None = None

    def add(self, blocks: Blocks, hashes: Words = NO_HASHES) -> Part:
        """Write all blocks; their hashes are written to `hashes` where it has room for them."""
        offset, checksum = self._add(blocks.pieces(), hashes)
        return Part(self.name, offset, blocks.size, checksum)

    def add_pieces(self, pieces: Iterable[Words], size: int) -> Part:
        """Write whole blocks, of which the first `size` bytes count."""
        offset, checksum = self._add(pieces, NO_HASHES)
        return Part(self.name, offset, size, checksum)

    def add_patch(self, blocks: Blocks, changed: npt.NDArray[np.int32]) -> Patch:
        """Write the blocks of these numbers."""
        offset, checksum = self._add(chain(Blocks(changed).pieces(), _gathered(blocks, changed)), NO_HASHES)
        return Patch(self.name, offset, len(changed), checksum)

    def _add(self, pieces: Iterable[Words], hashes: Words) -> tuple[int, int]:
        offset, checksum, first = self.size, self._seed, 0
        for piece in pieces:
            count = len(piece) // WORDS
            checksum = np.uint64(hash_blocks(piece, self._seed, checksum, hashes[first : first + count]))
            first += count
            self._queue(piece)
        return offset, int(checksum)

    def _queue(self, words: Words) -> None:
        """Write, large pieces while the next one is hashed; never more than one is under way."""
        self._settle()
        self.size += words.nbytes
        if words.nbytes < LARGE:
            self._write(words)
        else:
            self._under_way = self._writer.submit(self._write, words)

    def _settle(self) -> None:
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def _write(self, words: Words) -> None:
        rest = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
        while rest:
            rest = rest[self._file.write(rest) :]

    def finish(self) -> None:
        """Bring the file to the disk."""
        self._settle()
        os.fsync(self._file.fileno())
        self._close()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._close()
        self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        self._writer.shutdown()
        self._file.close()


def sync_folder(folder: Path) -> None:
    """Bring the folder's list of names to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def torn(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint in {str(path.parent)!r} is damaged: {path.name} {what}",
        "use another checkpoint; nothing was read from this one.",
    )


class StateFiles:
    """The files of one checkpoint, open: they can be read even when the one after it takes their place."""

    def __init__(self, folder: Path, sizes: Mapping[str, int], seed: int) -> None:
        self._folder = folder
        self._seed = np.uint64(seed)
        self._files: dict[str, io.FileIO] = {}
        try:
            for name, size in sizes.items():
                self._files[name] = self._open(name, size)
        except BaseException:
            self.close()
            raise

    def _open(self, name: str, size: int) -> io.FileIO:
        path = self._folder / name
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise torn(path, "is missing") from error
        except OSError as error:
            raise torn(path, f"cannot be read ({error.strerror})") from error
        found = os.fstat(file.fileno()).st_size
        if found != size:
            file.close()
            raise torn(path, f"has {found:,} bytes, not {size:,}")
        return file

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def part(self, part: Part, hashes: Words = NO_HASHES) -> Words:
        """Return the part's blocks, checked; their hashes are written to `hashes` where it has room for them."""
        return self._checked(part, hashes)

    def apply(self, patch: Patch, words: Words) -> None:
        """Bring the changed blocks, checked, to their places."""
        stored = self._checked(patch, NO_HASHES)
        numbers = stored[: patch.numbers_stored // 8].view(np.int32)[: patch.blocks]
        put_blocks(words, read_only(numbers), read_only(stored[patch.numbers_stored // 8 :]))

    def _checked(self, at: Part | Patch, hashes: Words) -> Words:
        words: Words = np.empty(at.stored // 8, np.uint64)
        checksum = self._seed
        for first in range(0, len(words), PIECE // 8):
            piece = words[first : first + PIECE // 8]
            self._fill(at.file, at.offset + 8 * first, piece)
            places = hashes[first // WORDS : (first + len(piece)) // WORDS]
            checksum = np.uint64(hash_blocks(read_only(piece), self._seed, checksum, places))
        if int(checksum) != at.checksum:
            raise torn(self._folder / at.file, "is not as it was written")
        return words

    def _fill(self, name: str, offset: int, words: Words) -> None:
        rest = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
        file = self._files[name]
        file.seek(offset)
        while rest:
            count = file.readinto(rest)
            if not count:
                raise torn(self._folder / name, "is too short")
            rest = rest[count:]
