"""The manifest: what a checkpoint consists of. It is written last, under another name, and renamed.

Its first line names the format, its second the run that wrote it, the version and a checksum of the rest, which
is JSON. Files that no manifest names are leftovers.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from squill.engine.state.files import Part, Patch, sync_folder, torn
from squill.errors import CheckpointError

__all__ = [
    "ARRAY_TYPE",
    "FORMAT",
    "MANIFEST",
    "SUFFIX",
    "Chunk",
    "Leaf",
    "Manifest",
    "read_manifest",
    "standing",
    "write_manifest",
]

FORMAT = 2
MANIFEST = "MANIFEST"
SUFFIX = ".state"
MAGIC = "squill checkpoint"
UNFINISHED = ".unfinished"
ARRAY_TYPE = -1
"""The type of chunks that are no columns but plain arrays."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array: a base, and what changed since."""

    size: int
    base: Part
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one column that never change. `dtype` is an entry of the manifest's types."""

    rows: int
    dtype: int
    parts: dict[str, tuple[str, Part]]
    """By name: the NumPy type, and where the bytes are."""


@dataclass(slots=True)
class Manifest:
    """Everything that a checkpoint's files mean."""

    run: str
    version: int
    seed: int
    plan: Any
    tree: Any = None
    leaves: dict[str, Leaf] = field(default_factory=dict)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    @property
    def live_bytes(self) -> int:
        """How much the state is, without what is out of date."""
        live = sum(leaf.size for leaf in self.leaves.values())
        return live + sum(part.stored for chunk in self.chunks.values() for _, part in chunk.parts.values())

    @property
    def places(self) -> list[Part | Patch]:
        """Everything that the files must hold."""
        found: list[Part | Patch] = []
        for leaf in self.leaves.values():
            found += [leaf.base, *leaf.patches]
        for chunk in self.chunks.values():
            found += [part for _, part in chunk.parts.values()]
        return found


def _to_json(manifest: Manifest) -> bytes:
    leaves = {
        path: [leaf.size, astuple(leaf.base), [astuple(patch) for patch in leaf.patches]]
        for path, leaf in manifest.leaves.items()
    }
    chunks = {
        str(number): [chunk.rows, chunk.dtype, {name: [kind, astuple(at)] for name, (kind, at) in chunk.parts.items()}]
        for number, chunk in manifest.chunks.items()
    }
    whole = {
        "seed": manifest.seed, "plan": manifest.plan, "tree": manifest.tree, "leaves": leaves, "chunks": chunks,
        "types": manifest.types, "files": manifest.files,
    }  # fmt: skip
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _from_json(run: str, version: int, body: bytes) -> Manifest:
    whole = json.loads(body)
    leaves = {
        path: Leaf(size, Part(*base), tuple(Patch(*patch) for patch in patches))
        for path, (size, base, patches) in whole["leaves"].items()
    }
    chunks = {
        int(number): Chunk(rows, dtype, {name: (kind, Part(*at)) for name, (kind, at) in parts.items()})
        for number, (rows, dtype, parts) in whole["chunks"].items()
    }
    return Manifest(
        run, version, whole["seed"], whole["plan"], whole["tree"], leaves, chunks, whole["types"], whole["files"]
    )


def _checksum(run: str, version: int, body: bytes) -> str:
    return hashlib.sha256(f"{run} {version}\n".encode() + body).hexdigest()


def write_manifest(folder: Path, manifest: Manifest, name: str = MANIFEST) -> int:
    """Make this the folder's checkpoint of that name, at once or not at all; return the bytes written."""
    body = _to_json(manifest)
    checksum = _checksum(manifest.run, manifest.version, body)
    head = f"{MAGIC} {FORMAT}\n{manifest.run} {manifest.version} {checksum}\n".encode()
    unfinished = folder / (name + UNFINISHED)
    with unfinished.open("wb") as file:
        file.write(head + body)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    unfinished.replace(folder / name)
    sync_folder(folder)
    return len(head) + len(body)


def standing(folder: Path) -> tuple[str, int] | None:
    """Return the run and the version of the folder's checkpoint; None when there is none."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            return _head(path, file.readline(), file.readline())[:2]
    except FileNotFoundError:
        return None


def _head(path: Path, first: bytes, second: bytes) -> tuple[str, int, str]:
    words = first.decode(errors="replace").rstrip("\n").rpartition(" ")
    if words[0] != MAGIC or not first.endswith(b"\n"):
        raise CheckpointError(
            f"{str(path)!r} is not the manifest of a checkpoint", "give a folder that checkpoint(path) has written."
        )
    if words[2] != str(FORMAT):
        newer = words[2].isdigit() and int(words[2]) > FORMAT
        raise CheckpointError(
            f"the checkpoint in {str(path.parent)!r} has format {words[2]}, this version of Squill reads {FORMAT}",
            f"restore it with the {'newer' if newer else 'older'} version that wrote it; it is left as it is.",
        )
    try:
        run, version, checksum = second.decode().split()
        return run, int(version), checksum
    except ValueError as error:
        raise torn(path, "is not as it was written") from error


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """Return what the folder's checkpoint of that name consists of.

    Raises
    ------
    CheckpointError
        There is no checkpoint, it is damaged, or of another format.
    """
    path = folder / name
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "is not there"
        raise CheckpointError(f"there is no checkpoint: {str(folder)!r} {what}", "give the folder of a checkpoint.")
    try:
        whole = path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(
            f"there is no checkpoint in {str(folder)!r}: it has no {name}",
            "the first checkpoint(path) may not have finished; start the query afresh.",
        ) from error
    first, _, rest = whole.partition(b"\n")
    second, _, body = rest.partition(b"\n")
    run, version, checksum = _head(path, first + b"\n", second)
    if _checksum(run, version, body) != checksum:
        raise torn(path, "is not as it was written")
    return _from_json(run, version, body)
