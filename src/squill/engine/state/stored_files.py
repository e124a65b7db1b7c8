"""The files of one checkpoint, read: every part is checked in the pass that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from squill.engine.columns import read_only
from squill.engine.state.files import NO_HASHES, PIECE, Part, Patch, torn
from squill.engine.state.kernels.blocks import WORDS, hash_blocks, put_blocks

__all__ = ["StoredFiles"]

Words = npt.NDArray[np.uint64]
READERS = 2
"""Threads that read ahead of the one that checks: the system's copies, into memory that is new, take the longest."""


class StoredFiles:
    """Open files: they can be read even when the checkpoint after this one takes their place."""

    def __init__(self, folder: Path, sizes: Mapping[str, int], seed: int) -> None:
        self._folder = folder
        self._seed = np.uint64(seed)
        self._files: dict[str, int] = {}
        self._readers = ThreadPoolExecutor(READERS, "squill-read")  # its threads start with the first large part
        try:
            for name, size in sizes.items():
                self._files[name] = self._open(name, size)
        except BaseException:
            self.close()
            raise

    def _open(self, name: str, size: int) -> int:
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise torn(path, "is missing") from error
        except OSError as error:
            raise torn(path, f"cannot be read ({error.strerror})") from error
        found = os.fstat(file).st_size
        if found != size:
            os.close(file)
            raise torn(path, f"has {found:,} bytes, not {size:,}")
        return file

    def close(self) -> None:
        self._readers.shutdown(cancel_futures=True)
        for file in self._files.values():
            os.close(file)
        self._files = {}

    def read(self, at: Part | Patch, words: Words, hashes: Words = NO_HASHES) -> None:
        """Read the blocks to `words`, which is as long, and check them; `hashes` gets theirs where it has room."""
        checksum = self._seed
        for first, piece in self._filled(at, words):
            places = hashes[first // WORDS : (first + len(piece)) // WORDS]
            checksum = np.uint64(hash_blocks(read_only(piece), self._seed, checksum, places))
        if int(checksum) != at.checksum:
            raise torn(self._folder / at.file, "is not as it was written")

    def apply(self, patch: Patch, words: Words, hashes: Words) -> None:
        """Bring the changed blocks, checked, to their places, and their hashes to theirs."""
        stored: Words = np.empty(patch.stored // 8, np.uint64)
        found: Words = np.empty(patch.stored // (8 * WORDS), np.uint64)
        self.read(patch, stored, found)
        cut = patch.numbers_stored // 8
        numbers = read_only(stored[:cut].view(np.int32)[: patch.blocks])
        put_blocks(words, numbers, read_only(stored[cut:]))
        # A block's hash is put like a block of one word.
        inside = (numbers >= 0) & (numbers < len(hashes))
        hashes[numbers[inside]] = found[cut // WORDS :][inside]

    def _filled(self, at: Part | Patch, words: Words) -> Iterator[tuple[int, Words]]:
        """Yield one piece after the other; those that follow are read meanwhile."""
        step = PIECE // 8
        pieces = [(first, words[first : first + step]) for first in range(0, len(words), step)]
        if len(pieces) < 2:
            for first, piece in pieces:
                self._fill(at, first, piece)
                yield first, piece
            return
        under_way = [self._readers.submit(self._fill, at, first, piece) for first, piece in pieces]
        for filled, (first, piece) in zip(under_way, pieces, strict=True):
            filled.result()
            yield first, piece

    def _fill(self, at: Part | Patch, first: int, words: Words) -> None:
        rest = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
        offset = at.offset + 8 * first
        while rest:
            count = os.preadv(self._files[at.file], [rest], offset)
            if not count:
                raise torn(self._folder / at.file, "is too short")
            rest, offset = rest[count:], offset + count
