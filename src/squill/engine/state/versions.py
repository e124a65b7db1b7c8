"""States of one shard, a version per epoch, of which the committed one stays while the next is written.

Whether a version counts is not the journal's to say: an epoch is committed elsewhere, for all shards at once. So every
version has a manifest of its own, named after its number and after who wrote it, since an epoch may be tried
several times and two tries may run at once. What is older than the committed version is removed by whoever writes
the next one.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squill.engine.state.folder import StoredState
from squill.engine.state.journal import Journal
from squill.engine.state.manifest import MANIFEST, SUFFIX, Manifest, read_manifest, write_manifest
from squill.engine.state.merge import is_due
from squill.errors import CheckpointError

__all__ = ["Version", "VersionedJournal", "read_version"]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a shard: its number, and the run of the journal that wrote it."""

    number: int
    run: str

    @property
    def manifest(self) -> str:
        """The name of its manifest."""
        return f"{MANIFEST}-{self.number:08}-{self.run}"


class VersionedJournal(Journal):
    """Writes versions into one folder; see `Journal` for what is in them."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self._committed: Version | None = None

    @property
    def version(self) -> Version:
        """The version that was written last."""
        return Version(self._manifest.version, self._run)

    @property
    def state_bytes(self) -> int:
        """How much the last version holds, in all files."""
        return sum(self._manifest.files.values())

    @property
    def live_bytes(self) -> int:
        """How much the state itself is, which is about what it takes in memory."""
        return self._manifest.live_bytes

    def write(self, folder: Path, state: object, committed: Version | None) -> Version:
        """Write the next version; `committed` is the one that stays until this one is committed too."""
        self._committed = committed
        self.checkpoint(folder, state)
        return self.version

    def _enter(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if folder == self._folder and all((folder / name).exists() for name in self._manifest.files):
            return
        self._forget()
        self._manifest.version = 0 if self._committed is None else self._committed.number
        self._folder = folder

    def _commit(self, folder: Path, manifest: Manifest) -> int:
        used = {place.file for place in manifest.places}
        manifest.files = {name: size for name, size in manifest.files.items() if name in used}
        if threading.current_thread() is self._merging:
            # What was merged counts from the next version on.
            self._manifest = manifest
            return 0
        written = write_manifest(folder, manifest, Version(manifest.version, self._run).manifest)
        self._manifest = manifest
        self._prune(folder)
        return written

    def _prune(self, folder: Path) -> None:
        """Remove what is older than the committed version and no part of it."""
        committed = self._committed
        if committed is None:
            return
        kept = {committed.manifest, self.version.manifest, *self._manifest.files, *self._merged_files}
        kept.update(read_manifest(folder, committed.manifest).files)
        for item in folder.iterdir():
            number = _number_of(item.name)
            if number is not None and number <= committed.number and item.name not in kept:
                item.unlink(missing_ok=True)

    def _merge_if_due(self, folder: Path) -> None:
        if (self._merging is None or not self._merging.is_alive()) and is_due(self._manifest):
            # Of the next version: who writes that one in our place takes nothing away from us before it is committed.
            name = f"{self._manifest.version + 1:08}-{secrets.token_hex(4)}{SUFFIX}"
            self._merged_files = {name, *self._manifest.files}
            self._merging = threading.Thread(
                target=self._merge, args=(folder, self._manifest, name), name="squill-merge", daemon=True
            )
            self._merging.start()


def _number_of(name: str) -> int | None:
    """Return of which version a file is; None when it is none of ours."""
    digits = name.removeprefix(f"{MANIFEST}-")[:8]
    is_ours = name.startswith(f"{MANIFEST}-") or name.endswith(SUFFIX)
    return int(digits) if is_ours and digits.isdigit() else None


def read_version(folder: Path, version: Version, journal: VersionedJournal) -> Any:
    """Return the state of a version, and let the journal go on from it.

    Raises
    ------
    CheckpointError
        It is not there, or damaged.
    """
    stored = StoredState(folder, version.manifest)
    if (stored.manifest.run, stored.manifest.version) != (version.run, version.number):
        raise CheckpointError(
            f"the state in {str(folder)!r} is not version {version.number}", "restore the folder from a copy."
        )
    state = stored.read()
    stored.go_on(journal)
    return state
