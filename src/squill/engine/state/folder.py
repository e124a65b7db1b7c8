"""A checkpoint read back: its manifest, its state, and a journal that goes on from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.columns import read_only
from squill.engine.owned import withdraw
from squill.engine.state.chunks import Known, place_of
from squill.engine.state.columns import dtype_from_text, series_from_parts
from squill.engine.state.files import BLOCK
from squill.engine.state.journal import Journal
from squill.engine.state.kernels.blocks import WORDS
from squill.engine.state.manifest import ARRAY_TYPE, MANIFEST, Manifest, read_manifest
from squill.engine.state.stored_files import StoredFiles
from squill.engine.state.tree import decode
from squill.errors import CheckpointError

__all__ = ["StoredState"]

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]


class StoredState:
    """The state in a folder. Every byte is checked when it is read."""

    def __init__(self, folder: Path, name: str = MANIFEST) -> None:
        self.folder = folder
        self._name = name
        self.manifest = read_manifest(folder, name)
        self._files: StoredFiles
        self._hashes: dict[str, Words] = {}
        self._known = Known()
        self._columns: dict[int, pl.Series | Array] = {}

    def read(self) -> Any:
        """Return the state as it was saved."""
        self.manifest, self._files = _opened(self.folder, self._name)
        try:
            return decode(self.manifest.tree, self)
        finally:
            self._files.close()

    def go_on(self, journal: Journal) -> None:
        """Let the journal's next checkpoint into this folder be a log; call it after `read`."""
        journal.resume(self.folder, self.manifest, self._hashes, self._known)
        self._columns = {}
        withdraw()

    def array(self, path: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        leaf = self.manifest.leaves[path]
        blocks, in_base = -(-leaf.size // BLOCK), leaf.base.stored // BLOCK
        most = max(blocks, in_base)
        words, hashes = np.empty(most * WORDS, np.uint64), np.empty(most, np.uint64)
        self._files.read(leaf.base, words[: in_base * WORDS], hashes)
        for patch in leaf.patches:
            # What is behind the base, where the array has grown, is all in patches.
            self._files.apply(patch, words, hashes)
        if blocks < most:
            words, hashes = words[: blocks * WORDS].copy(), hashes[:blocks].copy()
        self._hashes[path] = hashes
        return words.view(np.uint8)[: leaf.size].view(dtype).reshape(shape)

    def rows(self, place: Sequence[int]) -> pl.Series | Array:
        number, first, last = place
        column = self._columns.get(number)
        if column is None:
            column = self._columns[number] = self._column(number)
            at = place_of(column) if len(column) else None
            if at is not None:
                self._known.add(number, at)
        return column[first:last]

    def _column(self, number: int) -> pl.Series | Array:
        chunk = self.manifest.chunks[number]
        parts = {}
        for name, (kind, part) in chunk.parts.items():
            words = np.empty(part.stored // 8, np.uint64)
            self._files.read(part, words)
            parts[name] = read_only(words.view(np.uint8)[: part.size].view(np.dtype(kind)))
        if chunk.dtype == ARRAY_TYPE:
            return parts["values"]
        return series_from_parts("", dtype_from_text(self.manifest.types[chunk.dtype]), chunk.rows, parts)


def _opened(folder: Path, name: str) -> tuple[Manifest, StoredFiles]:
    """Return the manifest and its files. A run that is still going may replace both in between: then again."""
    while True:
        manifest = read_manifest(folder, name)
        try:
            return manifest, StoredFiles(folder, manifest.files, manifest.seed)
        except CheckpointError:
            if read_manifest(folder, name).files == manifest.files:
                raise
