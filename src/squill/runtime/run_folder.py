"""The folder of one run over files: all that it writes, and what another driver needs to go on with it.

::

    squill-run-<id>/
      driver.lock   held while a driver lives
      run.json      which run it is
      order         the plan, what its shards read, and what is to become of the answer: there before the first job
      done-1, …     what the tasks of the first stages have written: there once Spark has accepted all of them
      files-0/      what the first driver and its tasks write; one that goes on has a folder of its own, so that
                    a task that outlives its driver gets into nobody's way

The folder goes when the run ends, however it ends. Only a driver that dies leaves it. What is read on is whole:
files take their names when they are written, and one that cannot be read counts as not there.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from squill.errors import ClusterError, SquillError
from squill.plan.fragments import ShardedPlan
from squill.plan.nodes import Source
from squill.plan.serialise import dumps, loads
from squill.runtime.answer import Receipt
from squill.runtime.driver_lock import DriverLock
from squill.runtime.removal import remove_folder
from squill.runtime.report import Work
from squill.runtime.ticket import RunTicket

__all__ = [
    "KEPT_DAYS", "About", "Committed", "Order", "RunFolder", "StoredSplit", "driver_lives", "explained", "left_runs",
    "lost_files", "remove_old_runs", "run_place", "stamp_of", "versions",
]  # fmt: skip

PREFIX = "squill-run-"
LOCK = "driver.lock"
ABOUT = "run.json"
ORDER = "order"
DONE = "done-"
KEPT_DAYS = 7
"""The folder of a run whose driver died is removed so many days after it last changed, by the next run beside it."""

StoredSplit = tuple[Source, str | None]
"""What a shard reads of a stored source, and the file that holds its rows, when it was a frame."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """All that is to be done.

    ``plan``      without the rows of frames.
    ``splits``    by (fragment, leaf) what each shard reads.
    ``sources``   by path the size and the time of files that it reads.
    ``settings``  of the cluster: what `sq.spark` takes.
    ``request``   what was asked for: see `RunTicket`.
    """

    plan: ShardedPlan
    splits: Mapping[tuple[int, int], Sequence[StoredSplit]]
    sources: Mapping[str, tuple[int, int]]
    settings: Mapping[str, Any]
    request: Any

    def changed_sources(self) -> list[str]:
        """Return the files that are not as they were when the run began."""
        return [path for path, before in self.sources.items() if stamp_of(path) != before]


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What the tasks of stages that ran side by side have written, as Spark has accepted it."""

    manifest: pa.Table
    receipts: Sequence[Receipt]
    works: Sequence[Work]


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known of a run from its folder alone."""

    id: str
    action: str
    owner: str
    started: str
    dataset: str | None
    plan: str
    versions: dict[str, str]

    @classmethod
    def of(cls, ticket: RunTicket) -> About:
        names = ("id", "action", "owner", "started", "dataset", "plan")
        return cls(**{name: getattr(ticket, name) for name in names}, versions=versions())

    @classmethod
    def read(cls, folder: Path) -> About | None:
        """Return what the folder says; None when it is no run's, or not ours to read."""
        try:
            return cls(**json.loads((folder / ABOUT).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def versions() -> dict[str, str]:
    """Return what a driver must have to read a plan that another one wrote: plans are pickles."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"squill": _version("squill"), "polars": _version("polars"), "Python": python}


_version = cache(version)
"""Looked up in a file of the package each time, which takes longer than all else of a run's folder."""


def run_place(base: Path, run_id: str) -> Path:
    """Return the folder of a run."""
    return base / f"{PREFIX}{run_id}"


class RunFolder:
    """A run's folder, held by this driver: `path`, and `files`, where it and its tasks write.

    As a context it goes when that is left; attempts that outlive it cannot bring it back.
    """

    def __init__(self, path: Path, about: About, lock: DriverLock) -> None:
        self.path = path
        self.about = about
        self._lock = lock
        self._is_gone = False
        self.files = _new_folder(path)

    @classmethod
    def make(cls, base: Path, ticket: RunTicket) -> Self:
        """Return the folder of a run that begins."""
        place = run_place(base, ticket.id)
        hidden = place.with_name(f".{place.name}")
        about = About.of(ticket)
        lock: DriverLock | None = None
        with explained(base):
            base.mkdir(parents=True, exist_ok=True)
            try:
                hidden.mkdir(mode=0o700)
                # Held before others see the folder: one whose lock is free is a dead driver's.
                lock = DriverLock.take(hidden / LOCK)
                assert lock is not None
                _write(hidden / ABOUT, json.dumps(asdict(about), indent=1).encode())
                hidden.rename(place)
                return cls(place, about, lock)
            except BaseException:
                shutil.rmtree(hidden, ignore_errors=True)
                shutil.rmtree(place, ignore_errors=True)
                if lock is not None:
                    lock.release()
                raise

    @classmethod
    def take(cls, path: Path, owner: str) -> Self | None:
        """Return the folder of a run whose driver died; None while one lives. Nobody else can take it then."""
        about = About.read(path)
        lock = None if about is None else DriverLock.take(path / LOCK)
        if lock is None or about is None:
            return None
        about = About(**{**asdict(about), "owner": owner})
        with explained(path):
            _write(path / ABOUT, json.dumps(asdict(about), indent=1).encode())
            return cls(path, about, lock)

    def keep(self, order: Order) -> None:
        """Write what another driver needs to go on."""
        with explained(self.path):
            _write(self.path / ORDER, dumps(order))

    def order(self) -> Order | None:
        """Return what is to be done; None when the driver died before it was written."""
        try:
            found: Order = loads((self.path / ORDER).read_bytes())
        except FileNotFoundError:
            return None
        return found

    def commit(self, number: int, done: Committed) -> None:
        """Write that the stages of a wave are done."""
        with explained(self.path):
            _write(self.path / f"{DONE}{number}", dumps(done))

    def committed(self) -> dict[int, Committed]:
        """Return by wave what is done; waves are numbered from 1, and none is missing."""
        found: dict[int, Committed] = {}
        for number in range(1, 1 + len(list(self.path.glob(f"{DONE}*")))):
            try:
                found[number] = loads((self.path / f"{DONE}{number}").read_bytes())
            except Exception:  # noqa: BLE001  (what the disk lost when the host went down can be anything)
                break
        return found

    def start_over(self) -> None:
        """Forget what is done: files of it are lost."""
        for path in self.path.glob(f"{DONE}*"):
            path.unlink()

    def remove_unaccepted(self, accepted: set[str]) -> None:
        """Remove what tasks of dead drivers wrote in vain: others write it again, and it takes room."""
        for path in self.path.glob("files-*/t*"):
            if path.parent != self.files and str(path) not in accepted and not path.name.startswith("table-"):
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Leave the folder to others, as it is; when it is gone there is nothing to do."""
        if self._is_gone:
            return
        shutil.rmtree(self.files, ignore_errors=True)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._is_gone = True
        try:
            _remove(self.path)
        finally:
            self._lock.release()


def left_runs(base: Path) -> dict[str, Path]:
    """Return by id the folders of runs below `base`, of living drivers and of dead ones."""
    try:
        return {path.name.removeprefix(PREFIX): path for path in sorted(base.glob(f"{PREFIX}*"))}
    except OSError:
        return {}


def driver_lives(path: Path) -> bool | None:
    """Whether a driver holds the folder; None when there is none, or it cannot be told."""
    if not (path / LOCK).exists():
        return None
    try:
        lock = DriverLock.take(path / LOCK)
    except OSError:
        return None
    if lock is not None:
        lock.release()
    return lock is None


def remove_old_runs(base: Path, days: float = KEPT_DAYS) -> None:
    """Remove what dead drivers left long ago, and at once what nobody can go on with."""
    for path in [*base.glob(f"{PREFIX}*"), *base.glob(f".{PREFIX}*")]:
        with contextlib.suppress(OSError):  # it is another user's, or gone meanwhile
            is_old = time.time() - path.stat().st_mtime > days * 86_400
            # Without a lock it may be just being made, or made by an older version.
            if not is_old and ((path / ORDER).exists() or not (path / LOCK).exists()):
                continue
            lock = DriverLock.take(path / LOCK)
            if lock is None:
                continue
            shutil.rmtree(path, ignore_errors=True)
            lock.release()


def lost_files(manifest: pa.Table) -> bool:
    """Whether a file that the manifest names is not there, or shorter than it was."""
    lines = manifest.select(["path", "segments"]).to_pylist()
    ends: dict[str, int] = {}
    for line in lines:
        offsets = np.frombuffer(line["segments"], np.int64).reshape(-1, 3)
        ends[line["path"]] = max(ends.get(line["path"], 0), int((offsets[:, 0] + offsets[:, 1]).max(initial=0)))
    return any(not Path(path).is_file() or Path(path).stat().st_size < end for path, end in ends.items())


def stamp_of(path: str) -> tuple[int, int] | None:
    """Return the size and the time of a file; None when it is on no filesystem of this host."""
    try:
        found = os.stat(path)  # noqa: PTH116  (a path may be a URL, which is not to be taken apart)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


def _new_folder(path: Path) -> Path:
    number = 0
    while True:
        folder = path / f"files-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        return folder


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except SquillError:
        raise  # as for a file of an input, which is looked at meanwhile; some of these are OSErrors too
    except OSError as error:
        raise ClusterError(
            f"the folder of the run, {str(folder)!r}, cannot be written: {error.strerror or error}",
            "make room there, or give another one: sq.spark(…, folder=…).",
        ) from error


def _remove(path: Path) -> None:
    # First what makes it look like something to go on with, in case that this driver dies now.
    (path / ORDER).unlink(missing_ok=True)
    remove_folder(path)
