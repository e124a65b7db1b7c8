"""Base and logs folded into a new base: read from the files, while the query goes on.

An array is put together piece by piece, so that memory holds a piece, whatever its size. Everything that is read
is checked: a damaged file is not given a new, good checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from squill.engine.columns import read_only
from squill.engine.state.files import NO_HASHES, PIECE, Part, Patch, StateFile, torn
from squill.engine.state.kernels.blocks import WORDS, hash_blocks, put_blocks
from squill.engine.state.manifest import Chunk, Leaf, Manifest

__all__ = ["Merged", "is_due", "merge"]

Words = npt.NDArray[np.uint64]
MOST_FILES = 32
SHARE = 0.5
"""How much more than the state the files may hold."""
SLACK = 1024 * 1024
STEP = PIECE // 8


@dataclass(frozen=True, slots=True)
class Merged:
    """What a new file holds, and what it stands for."""

    snapshot: Manifest
    name: str
    size: int
    leaves: dict[str, Part]
    chunks: dict[int, Chunk]

    def taken_by(self, current: Manifest) -> Manifest:
        """Return the current manifest over the new file; what was written since the snapshot stays in logs."""
        leaves = {path: self._leaf(path, leaf) for path, leaf in current.leaves.items()}
        chunks = {number: self.chunks.get(number, chunk) for number, chunk in current.chunks.items()}
        return replace(current, leaves=leaves, chunks=chunks, files={**current.files, self.name: self.size})

    def _leaf(self, path: str, leaf: Leaf) -> Leaf:
        then = self.snapshot.leaves.get(path)
        if then is None or then.base != leaf.base:
            return leaf
        return Leaf(leaf.size, self.leaves[path], leaf.patches[len(then.patches) :])


def is_due(manifest: Manifest) -> bool:
    """Say whether the files hold so much that is out of date, or are so many, that merging them pays."""
    most = (1 + SHARE) * manifest.live_bytes + SLACK
    return len(manifest.files) > MOST_FILES or sum(manifest.files.values()) > most


def merge(folder: Path, manifest: Manifest, name: str) -> Merged:
    """Write everything that the manifest names to a new file."""
    file = StateFile(folder, name, manifest.seed, is_long=True)
    try:
        source = _Source(folder, manifest.seed)
        leaves = {path: file.add_pieces(source.leaf(leaf), leaf.size) for path, leaf in manifest.leaves.items()}
        chunks = {}
        for number, chunk in manifest.chunks.items():
            parts = {}
            for what, (kind, part) in chunk.parts.items():
                parts[what] = (kind, file.add_pieces(source.part(part), part.size))
            chunks[number] = Chunk(chunk.rows, chunk.dtype, parts)
        file.finish()
    except BaseException:
        file.abandon()
        raise
    return Merged(manifest, name, file.size, leaves, chunks)


class _Source:
    """The parts of files, mapped: the system reads, and forgets, what is looked at."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = np.uint64(seed)

    def part(self, part: Part) -> Iterator[Words]:
        words = self._checked(part)
        for first in range(0, len(words), STEP):
            yield words[first : first + STEP]

    def leaf(self, leaf: Leaf) -> Iterator[Words]:
        base = self._checked(leaf.base)
        patches = [self._numbers_and_content(patch) for patch in leaf.patches]
        words = -(-leaf.size // (8 * WORDS)) * WORDS
        for first in range(0, words, STEP):
            piece = np.zeros(min(STEP, words - first), np.uint64)
            kept = base[first : first + len(piece)]
            piece[: len(kept)] = kept
            for numbers, content in patches:
                low, high = np.searchsorted(numbers, [first // WORDS, (first + len(piece)) // WORDS])
                some = read_only(numbers[low:high] - np.int32(first // WORDS))
                put_blocks(piece, some, content[low * WORDS : high * WORDS])
            yield read_only(piece)

    def _numbers_and_content(self, patch: Patch) -> tuple[npt.NDArray[np.int32], Words]:
        words = self._checked(patch)
        cut = patch.numbers_stored // 8
        return words[:cut].view(np.int32)[: patch.blocks], words[cut:]

    def _checked(self, at: Part | Patch) -> Words:
        path = self._folder / at.file
        if not at.stored:
            return NO_HASHES
        mapped = np.memmap(path, np.uint64, "r", at.offset, at.stored // 8)
        words: Words = read_only(np.asarray(mapped))
        checksum = self._seed
        for first in range(0, len(words), STEP):
            checksum = np.uint64(hash_blocks(words[first : first + STEP], self._seed, checksum, NO_HASHES))
        if int(checksum) != at.checksum:
            raise torn(path, "is not as it was written")
        return words
