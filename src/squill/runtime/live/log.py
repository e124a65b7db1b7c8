"""The checkpoint folder of a live query: what each epoch reads, what was committed, and whose folder it is.

``QUERY``              the plan; another one is refused
``LOCK``               held by the process that runs the query
``epochs/00000007``    what epoch 7 reads, written before it begins
``commits/00000007``   that epoch 7 counts: the shards, the versions of all states, the clocks, the files of its answer
``state/1-0/``         the versions of the state of fragment 1, shard 0 (see ``engine/state/versions``)
``answers/``           rows on their way to a sink
``readings/``          tables that are read again, as they were read last

Everything is written under another name first and renamed, so that what is there is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from squill.engine.state.versions import Version
from squill.errors import CheckpointError
from squill.plan.fingerprint import difference
from squill.runtime.driver_lock import DriverLock
from squill.runtime.stored_answer import sync_to_disk

__all__ = [
    "READINGS",
    "Commit",
    "EpochLog",
    "EpochRecord",
    "MemoryLog",
    "check_query",
    "last_commit",
    "shards_of_checkpoint",
    "write_beginning",
    "write_query",
]  # fmt: skip

T = TypeVar("T")

FORMAT = 1
KEPT = 50
"""So many epochs behind the last one stay, for people to look at."""
FOLDERS = ("epochs", "commits", "state", "answers")
READINGS = "readings"
"""The folder of the tables that are read again."""
UNFINISHED = ".beginning"
"""There while the states that a query begins with are copied."""
BASE_EVERY = 20
"""A commit in so many says the inputs' whole offsets; the others are told by their epochs' records."""


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """What an epoch reads: by input what is new, and the inputs' clocks before it.

    ``readings``  by table that is read again, as JSON says it: the reading whose changes enter.
    """

    number: int
    news: Mapping[int, Any]
    clocks: Mapping[int, int]
    reaches: Mapping[int, int] = field(default_factory=dict)
    last: tuple[int, ...] = ()
    readings: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What an epoch has come to.

    ``states``   by (fragment, shard): the version of its state.
    ``clocks``   by input, what all shards know of its time.
    ``reached``  by input: offsets that were known only after reading.
    ``files``    the answer's files, hidden, with their rows; they are handed to the sink after the commit.
    ``offsets``  by input, all that was taken before this epoch; only now and then.
    ``late``     by input: how many rows were late so far.
    ``early``    the file of the early answer that the sink has, if it is given any.
    ``peaks``    by input of partitions: the latest start in each.
    ``readings``  by table that is read again: the last reading that counts.
    """

    number: int
    states: Mapping[tuple[int, int], Version]
    clocks: Mapping[int, int]
    reached: Mapping[int, Mapping[int, Any]] = field(default_factory=dict)
    files: tuple[tuple[str, int], ...] = ()
    offsets: Mapping[int, Any] | None = None
    late: Mapping[int, int] = field(default_factory=dict)
    peaks: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    early: str | None = None
    readings: Mapping[int, Any] = field(default_factory=dict)
    rows: int = 0
    is_final: bool = False


class MemoryLog:
    """A query without a checkpoint: nothing is written, nothing can be gone on with."""

    folder: Path | None = None

    def open(self) -> tuple[Commit | None, list[tuple[EpochRecord, Commit]], EpochRecord | None]:
        """Return the last commit with whole offsets, the epochs from it on, and one that was only begun."""
        return None, [], None

    def begin(self, record: EpochRecord) -> None:
        """Write down what an epoch is going to read."""

    def commit(self, commit: Commit) -> None:
        """Let an epoch count."""

    def divide(self, shards: list[int]) -> None:
        """Let there be so many shards from the next commit on."""

    def wants_offsets(self, number: int) -> bool:
        """Whether the commit of this epoch is to say the whole offsets."""
        return False

    def drop(self, record: EpochRecord) -> None:
        """Forget an epoch that turned out to have nothing in it."""

    def close(self) -> None:
        """Let the next process have the folder."""


class EpochLog(MemoryLog):
    """The folder of one query; it is this process's from `open` to `close`.

    `shards` are those that the checkpoint must be of, when the plan is going to have others from its next commit on;
    `lay` puts what the query begins with into a folder that is empty.
    """

    def __init__(
        self, folder: Path, plan: Any, shards: list[int] | None = None, lay: Callable[[Path], None] | None = None
    ) -> None:
        self.folder: Path = folder
        self._plan = plan
        self._shards = plan["shards"] if shards is None else shards
        self._lay = lay
        self._lock: DriverLock | None = None

    def open(self) -> tuple[Commit | None, list[tuple[EpochRecord, Commit]], EpochRecord | None]:
        try:
            self._enter()
            return self._found()
        except OSError as error:
            self.close()
            raise _unusable(self.folder, error) from error
        except BaseException:
            self.close()
            raise

    def _enter(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        whose = self.folder / "QUERY"
        unfinished = self.folder / UNFINISHED
        if not whose.exists():
            ours = {"LOCK", "QUERY.part", *((UNFINISHED, READINGS, *FOLDERS) if unfinished.exists() else ())}
            strangers = sorted(item.name for item in self.folder.iterdir() if item.name not in ours)
            if strangers:
                raise CheckpointError(
                    f"start: {str(self.folder)!r} holds other files, such as {strangers[0]}",
                    "give a folder of its own as checkpoint=; it is made when it is not there.",
                )
        self._lock = DriverLock.take(self.folder / "LOCK")
        if self._lock is None:
            raise CheckpointError(
                f"start: another query runs with the checkpoint {str(self.folder)!r}",
                "stop it first, or give a folder of its own.",
            )
        if whose.exists():
            check_query(whose, {**self._plan, "shards": self._shards}, f"the checkpoint {str(self.folder)!r}")
        else:
            self._begin_folder(whose, unfinished)
        for name in FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)

    def _begin_folder(self, whose: Path, unfinished: Path) -> None:
        """Write what the query begins with, then whose it is: from then on it is a checkpoint."""
        if unfinished.exists():  # of a process that died here
            for name in (*FOLDERS, READINGS):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        if self._lay is not None:
            unfinished.touch()
            self._lay(self.folder)
        write_query(whose, {**self._plan, "shards": self._shards})
        unfinished.unlink(missing_ok=True)

    def _found(self) -> tuple[Commit | None, list[tuple[EpochRecord, Commit]], EpochRecord | None]:
        numbers = sorted(int(item.name) for item in (self.folder / "commits").iterdir() if item.name.isdigit())
        found = [_read(self._commit_path(number), _commit_from) for number in numbers]
        commits = [self._with_paths(commit, lambda path: str(self.folder / path)) for commit in found]
        bases = [commit for commit in commits if commit.offsets is not None]
        base = bases[-1] if bases else None
        later = [commit for commit in commits if base is None or commit.number >= base.number]
        epochs = [(self._record(commit.number), commit) for commit in later]
        begun = self._epoch_path((numbers[-1] if numbers else 0) + 1)
        return base, epochs, _read(begun, _record_from) if begun.exists() else None

    def _record(self, number: int) -> EpochRecord:
        return _read(self._epoch_path(number), _record_from)

    def begin(self, record: EpochRecord) -> None:
        try:
            _write(self._epoch_path(record.number), _record_to(record))
        except OSError as error:
            raise _unusable(self.folder, error) from error

    def drop(self, record: EpochRecord) -> None:
        self._epoch_path(record.number).unlink(missing_ok=True)

    def divide(self, shards: list[int]) -> None:
        self._plan = {**self._plan, "shards": shards}

    def wants_offsets(self, number: int) -> bool:
        return number % BASE_EVERY == 0

    def commit(self, commit: Commit) -> None:
        try:
            content = _commit_to(self._with_paths(commit, self._inside))
            _write(self._commit_path(commit.number), {**content, "shards": self._plan["shards"]})
        except OSError as error:
            raise _unusable(self.folder, error) from error
        if commit.offsets is not None:
            self._prune(commit.number - KEPT)

    def _inside(self, path: str) -> str:
        """Return the path of a file of this folder from here: the folder may be moved, or be a copy."""
        return str(Path(path).relative_to(self.folder)) if Path(path).is_relative_to(self.folder) else path

    @staticmethod
    def _with_paths(commit: Commit, changed: Callable[[str], str]) -> Commit:
        files = tuple((changed(path), rows) for path, rows in commit.files)
        return replace(commit, files=files, early=None if commit.early is None else changed(commit.early))

    def _prune(self, until: int) -> None:
        for name in ("epochs", "commits"):
            for item in (self.folder / name).iterdir():
                if item.name.isdigit() and int(item.name) < until:
                    item.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _epoch_path(self, number: int) -> Path:
        return self.folder / "epochs" / f"{number:08}"

    def _commit_path(self, number: int) -> Path:
        return self.folder / "commits" / f"{number:08}"


def write_query(path: Path, plan: Any) -> None:
    """Write down whose a folder is."""
    _write(path, {"format": FORMAT, "plan": plan})


def check_query(path: Path, plan: Any, where: str) -> None:
    """Raise when what `write_query` has written is of another version, plan, number of shards or form of answers."""
    _read(path, lambda found: _refuse_other(found, plan, where, path.parent))


def _refuse_other(found: Any, plan: Any, where: str, folder: Path) -> None:
    if found.get("format") != FORMAT:
        raise CheckpointError(
            f"start: {where} has format {found.get('format')}, this version of Squill reads {FORMAT}",
            "go on with the version that wrote it; it is left as it is.",
        )
    stored = found["plan"]
    for what in ("state", "hash"):
        if stored[what] != plan[what]:
            raise CheckpointError(
                f"start: {where} holds {what} version {stored[what]}, this version of Squill has {plan[what]}",
                "go on with the version of Squill that wrote it; it is left as it is.",
            )
    shards = shards_of_checkpoint(folder)
    if shards != plan["shards"]:
        raise CheckpointError(
            f"start: {where} is of shards {shards}, this query has {plan['shards']}",
            "run it on as many shards as before, or with a fresh checkpoint.",
        )
    for there, here in zip(stored["fragments"], plan["fragments"], strict=False):
        parts = difference(there, here)
        if parts is not None:
            raise CheckpointError(
                f"start: {where} is of another query:\n  there: {parts[0]}\n  here:  {parts[1]}",
                "start the query that it belongs to; what is there is left as it is.",
            )
    if stored["emit"] != plan["emit"]:
        raise CheckpointError(
            f'start: {where} is of a query with emit="{stored["emit"]}", this one has emit="{plan["emit"]}"',
            "start it as before; what is there is left as it is.",
        )


def last_commit(folder: Path) -> Commit:
    """Return what the query of a folder has come to."""
    return _read(max((folder / "commits").glob("[0-9]*[0-9]")), _commit_from)


def write_beginning(folder: Path, commit: Commit) -> None:
    """Let the query of a folder begin from states that are there: they are those of an epoch before the first one."""
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    _write(folder / "epochs" / f"{commit.number:08}", _record_to(EpochRecord(number=commit.number, news={}, clocks={})))
    _write(folder / "commits" / f"{commit.number:08}", _commit_to(commit))


def shards_of_checkpoint(folder: Path) -> list[int] | None:
    """Return how many shards the query of a checkpoint has, source by source and movement by movement, if it is one."""
    whose = folder / "QUERY"
    if not whose.is_file():
        return None
    first: list[int] = _read(whose, lambda found: _counts(found["plan"]["shards"]))
    commits = sorted(item for item in (folder / "commits").glob("*") if item.name.isdigit())
    # The first commit after it was divided says so; one without a word is of before there were any.
    return _read(commits[-1], lambda found: _counts(found.get("shards", first))) if commits else first


def _counts(found: Any) -> list[int]:
    return [int(count) for count in found]


def _unusable(folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"start: the checkpoint {str(folder)!r} cannot be used: {error.strerror or error}",
        "what was committed before is as it was; see to the disk and start again.",
    )


def _write(path: Path, content: Any) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        json.dump(content, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_to_disk(path.parent)


def _read(path: Path, parse: Callable[[Any], T]) -> T:
    try:
        return parse(json.loads(path.read_text()))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CheckpointError(
            f"start: {str(path)!r} is damaged: {type(error).__name__}: {error}",
            "restore the checkpoint folder from a copy.",
        ) from error


def _ints(given: Mapping[str, Any]) -> dict[int, Any]:
    return {int(name): value for name, value in given.items()}


def _record_to(record: EpochRecord) -> Any:
    return {
        "number": record.number, "news": dict(record.news), "clocks": dict(record.clocks),
        "reaches": dict(record.reaches), "last": list(record.last), "readings": dict(record.readings),
    }  # fmt: skip


def _record_from(found: Any) -> EpochRecord:
    return EpochRecord(
        number=found["number"],
        news=_ints(found["news"]),
        clocks=_ints(found["clocks"]),
        reaches=_ints(found["reaches"]),
        last=tuple(found["last"]),
        readings=_ints(found.get("readings", {})),
    )


def _commit_to(commit: Commit) -> Any:
    return {
        "number": commit.number,
        "states": [[*place, version.number, version.run] for place, version in commit.states.items()],
        "clocks": dict(commit.clocks),
        "reached": {number: dict(reached) for number, reached in commit.reached.items()},
        "files": [list(item) for item in commit.files],
        "offsets": None if commit.offsets is None else dict(commit.offsets),
        "late": dict(commit.late),
        "peaks": {number: dict(peaks) for number, peaks in commit.peaks.items()},
        "early": commit.early,
        "readings": dict(commit.readings),
        "rows": commit.rows,
        "final": commit.is_final,
    }


def _commit_from(found: Any) -> Commit:
    return Commit(
        number=found["number"],
        states={(fragment, shard): Version(number, run) for fragment, shard, number, run in found["states"]},
        clocks=_ints(found["clocks"]),
        reached={number: _ints(reached) for number, reached in _ints(found["reached"]).items()},
        files=tuple((path, rows) for path, rows in found["files"]),
        offsets=None if found["offsets"] is None else _ints(found["offsets"]),
        late=_ints(found["late"]),
        peaks={number: _ints(peaks) for number, peaks in _ints(found["peaks"]).items()},
        early=found["early"],
        readings=_ints(found.get("readings", {})),
        rows=found["rows"],
        is_final=found["final"],
    )
