"""One checkpoint after the other into one folder: a base first, then what changed since.

The journal remembers a hash of every block of every array that it has written, an eighth of the state's size. A
checkpoint hashes the state again, at the speed of memory, and writes the blocks whose hash is another: no
kernel needs to say what it changed. Rows that never change are written once (see `chunks`). What a version
writes is one file; the manifest that names it makes it count. Files that hold mostly what is out of date are
merged behind the scenes (see `merge`).
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.state.chunks import Known, place_of
from squill.engine.state.columns import column_parts, dtype_to_text
from squill.engine.state.files import NO_HASHES, Blocks, StateFile, locked
from squill.engine.state.kernels.blocks import WORDS, changed_blocks, hash_blocks
from squill.engine.state.manifest import (
    ARRAY_TYPE,
    MANIFEST,
    SUFFIX,
    Chunk,
    Leaf,
    Manifest,
    standing,
    write_manifest,
)
from squill.engine.state.merge import is_due, merge
from squill.engine.state.tree import encode
from squill.errors import CheckpointError

__all__ = ["Journal"]

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
SHORT = 4
"""A slice of less than one in so many rows of its chunk is written as a chunk of its own."""


class Journal:
    """Writes the checkpoints of one running query, one folder at a time."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._run = secrets.token_hex(8)
        self._folder: Path | None = None
        self._expected: tuple[str, int] | None = None
        self._forget()
        self._lock = threading.Lock()
        self._merging: threading.Thread | None = None
        self._merged_files: set[str] = set()

    def _forget(self) -> None:
        self._manifest = Manifest(self._run, 0, secrets.randbits(64), self._plan)
        self._hashes: dict[str, Words] = {}
        self._known = Known()
        self._next_chunk = 0

    def resume(self, folder: Path, manifest: Manifest, hashes: dict[str, Words], known: Known) -> None:
        """Go on where the checkpoint that was restored ended."""
        self._folder = folder
        self._expected = manifest.run, manifest.version
        self._manifest = replace(manifest, run=self._run)
        self._hashes, self._known = hashes, known
        self._next_chunk = max(manifest.chunks, default=-1) + 1

    def checkpoint(self, folder: Path, state: object) -> int:
        """Write the state; return how many bytes went to the disk.

        Raises
        ------
        CheckpointError
            The folder holds something else, or cannot be written. The checkpoint before is as it was.
        """
        with self._lock:
            try:
                self._enter(folder)
                written = self._write(folder, state)
            except OSError as error:
                raise CheckpointError(
                    f"checkpoint: {str(folder)!r} cannot be written: {error}",
                    "the checkpoint before, if there is one, is as it was.",
                ) from error
        self._merge_if_due(folder)
        return written

    def wait(self) -> None:
        """Wait until nothing is merged."""
        if self._merging is not None:
            self._merging.join()

    # -- the folder ---------------------------------------------------------------------------------------

    def _enter(self, folder: Path) -> None:
        """See that the folder is empty or ours; elsewhere than before, everything is written anew."""
        folder.mkdir(parents=True, exist_ok=True)
        found = standing(folder)
        if folder == self._folder:
            self._refuse_other(folder, found, self._expected)
            return
        if found is None:
            strangers = [item.name for item in folder.iterdir() if not _is_ours(item)]
            if strangers:
                raise CheckpointError(
                    f"checkpoint: {str(folder)!r} holds other files, such as {min(strangers)}",
                    "give a folder of its own; it is made when it is not there.",
                )
        elif found[0] != self._run:
            self._refuse_other(folder, found, None)
        self._forget()
        self._manifest.version = found[1] if found else 0
        self._folder, self._expected = folder, found

    @staticmethod
    def _refuse_other(folder: Path, found: tuple[str, int] | None, expected: tuple[str, int] | None) -> None:
        if found != expected:
            if expected is not None and found is not None:
                raise CheckpointError(
                    f"checkpoint: another run has gone on in {str(folder)!r}: it holds version {found[1]} of that "
                    f"one, this query was at version {expected[1]}",
                    "give a fresh folder; what is there is the other's and is left as it is.",
                )
            what = "is gone from" if found is None else "of another run is in"
            raise CheckpointError(
                f"checkpoint: a checkpoint {what} {str(folder)!r}",
                "give a fresh folder, or restore the query from the checkpoint before it goes on there.",
            )

    # -- one version --------------------------------------------------------------------------------------

    def _write(self, folder: Path, state: object) -> int:
        before = self._manifest
        version = before.version + 1
        name = f"{version:08}-{secrets.token_hex(4)}{SUFFIX}"
        file = StateFile(folder, name, before.seed, is_long=not before.leaves)
        try:
            after = Manifest(self._run, version, before.seed, self._plan, types=list(before.types))
            writer = _Version(file, before, after, self._hashes, self._known, self._next_chunk)
            after.tree = encode(state, writer)
            file.finish()
            after.files = {**before.files, file.name: file.size}
            written = file.size + self._commit(folder, after)
        except BaseException:
            # The hashes are those of the state, not of what is written: the next one writes everything.
            file.abandon()
            self._forget()
            self._folder = None
            raise
        self._next_chunk = writer.next_chunk
        self._known.keep(set(after.chunks))
        for path in self._hashes.keys() - after.leaves.keys():
            del self._hashes[path]
        return written

    def _commit(self, folder: Path, manifest: Manifest) -> int:
        used = {place.file for place in manifest.places}
        manifest.files = {name: size for name, size in manifest.files.items() if name in used}
        # Two queries may have been restored from this folder: only one of them goes on in it.
        with locked(folder):
            self._refuse_other(folder, standing(folder), self._expected)
            written = write_manifest(folder, manifest)
            self._manifest = manifest
            self._expected = manifest.run, manifest.version
            for item in folder.iterdir():
                if item.suffix == SUFFIX and item.name not in manifest.files and not self._is_in_use(item):
                    item.unlink(missing_ok=True)
        return written

    # -- merging ------------------------------------------------------------------------------------------

    def _is_in_use(self, item: Path) -> bool:
        return self._merging is not None and self._merging.is_alive() and item.name in self._merged_files

    def _merge_if_due(self, folder: Path) -> None:
        if (self._merging is None or not self._merging.is_alive()) and is_due(self._manifest):
            name = f"{self._manifest.version:08}-{secrets.token_hex(4)}{SUFFIX}"
            self._merged_files = {name, *self._manifest.files}
            self._merging = threading.Thread(
                target=self._merge, args=(folder, self._manifest, name), name="squill-merge"
            )
            self._merging.start()

    def _merge(self, folder: Path, snapshot: Manifest, name: str) -> None:
        """Write all that the manifest names to one file, from the files, then switch to that file."""
        try:
            merged = merge(folder, snapshot, name)
            with self._lock:
                self._merged_files = set()
                if self._folder == folder and self._manifest.run == snapshot.run:
                    self._commit(folder, merged.taken_by(self._manifest))
        except (OSError, CheckpointError):
            # The checkpoint stands without it; what is wrong with the disk shows at the next one.
            (folder / name).unlink(missing_ok=True)


def _is_ours(item: Path) -> bool:
    return item.suffix == SUFFIX or item.name.startswith(MANIFEST)


class _Version:
    """Takes the state's arrays: writes what is new to the version's file, and notes where everything is."""

    def __init__(
        self,
        file: StateFile,
        before: Manifest,
        after: Manifest,
        hashes: dict[str, Words],
        known: Known,
        next_chunk: int,
    ) -> None:
        self._file = file
        self._before = before
        self._after = after
        self._hashes = hashes
        self._known = known
        self.next_chunk = next_chunk
        self._seed = np.uint64(before.seed)
        self._contents = {_content(chunk): number for number, chunk in before.chunks.items()}
        self._types = {text: number for number, text in enumerate(after.types)}

    def array(self, path: str, array: Array) -> None:
        blocks = Blocks(array)
        leaf = self._before.leaves.get(path)
        if leaf is None:
            self._hashes[path] = np.empty(blocks.count, np.uint64)
            self._after.leaves[path] = Leaf(blocks.size, self._file.add(blocks, self._hashes[path]))
            return
        changed = self._changed(path, blocks)
        if 2 * len(changed) > blocks.count:
            self._after.leaves[path] = Leaf(blocks.size, self._file.add(blocks))
        elif len(changed):
            patch = self._file.add_patch(blocks, changed)
            self._after.leaves[path] = Leaf(blocks.size, leaf.base, (*leaf.patches, patch))
        else:
            self._after.leaves[path] = Leaf(blocks.size, leaf.base, leaf.patches)

    def _changed(self, path: str, blocks: Blocks) -> npt.NDArray[np.int32]:
        """Return the numbers of the blocks that are new or other than before."""
        hashes = self._hashes[path]
        known = min(len(hashes), blocks.count)
        if len(hashes) != blocks.count:
            resized = np.empty(blocks.count, np.uint64)
            resized[:known] = hashes[:known]
            hashes = self._hashes[path] = resized
        changed = np.empty(blocks.count, np.int32)
        whole = len(blocks.words) // WORDS
        count = changed_blocks(blocks.words, self._seed, hashes[:whole], known, 0, changed)
        if blocks.has_tail:
            rest = max(known - whole, 0)
            count += changed_blocks(blocks.tail, self._seed, hashes[whole:], rest, whole, changed[count:])
        return changed[:count]

    def rows(self, column: pl.Series | Array) -> list[int]:
        place = place_of(column) if len(column) else None
        if place is None:
            return [self._by_content(column), 0, len(column)]
        found = self._known.find(place)
        if found is not None:
            number, first = found
            if number in self._after.chunks or SHORT * place.rows >= self._before.chunks[number].rows:
                self._after.chunks.setdefault(number, self._before.chunks.get(number))  # type: ignore[arg-type]
                return [number, first, first + place.rows]
        number = self._add(column, self._parts(column))
        self._known.add(number, place)
        return [number, 0, place.rows]

    def _by_content(self, column: pl.Series | Array) -> int:
        """Return the chunk of equal rows; there may be one that was not written from the same memory."""
        parts = self._parts(column)
        kinds = [(name, part.dtype.str, Blocks(part)) for name, part in parts.items()]
        content = (
            len(column),
            self._type(column),
            tuple((name, kind, b.size, self._sum(b)) for name, kind, b in kinds),
        )
        number = self._contents.get(content)
        if number is None:
            number = self._contents[content] = self._add(column, parts)
        elif number not in self._after.chunks:
            self._after.chunks[number] = self._before.chunks[number]
        return number

    def _sum(self, blocks: Blocks) -> int:
        checksum = self._seed
        for piece in blocks.pieces():
            checksum = np.uint64(hash_blocks(piece, self._seed, checksum, NO_HASHES))
        return int(checksum)

    @staticmethod
    def _parts(column: pl.Series | Array) -> dict[str, Array]:
        return {"values": column} if isinstance(column, np.ndarray) else column_parts(column)

    def _add(self, column: pl.Series | Array, parts: dict[str, Array]) -> int:
        number = self.next_chunk
        self.next_chunk += 1
        written = {name: (part.dtype.str, self._file.add(Blocks(part))) for name, part in parts.items()}
        self._after.chunks[number] = Chunk(len(column), self._type(column), written)
        return number

    def _type(self, column: pl.Series | Array) -> int:
        if isinstance(column, np.ndarray):
            return ARRAY_TYPE
        text = dtype_to_text(column.dtype)
        if text not in self._types:
            self._types[text] = len(self._after.types)
            self._after.types.append(text)
        return self._types[text]


def _content(chunk: Chunk) -> tuple[Any, ...]:
    parts = tuple((name, kind, part.size, part.checksum) for name, (kind, part) in chunk.parts.items())
    return chunk.rows, chunk.dtype, parts
