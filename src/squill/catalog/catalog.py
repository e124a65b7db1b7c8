"""`Catalog`: names for datasets, and how each of them came to be."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from squill.catalog.database import Database
from squill.catalog.tables import datasets, errors, files, lineage, runs
from squill.errors import ClusterError, DatasetNotFoundError, PlanError, SourceReadError
from squill.plan.dataset import DAMAGED, Dataset
from squill.plan.paths import unfit_text
from squill.wording import shortened

__all__ = [
    "CANCELLED",
    "DONE",
    "FAILED",
    "RUNNING",
    "Catalog",
    "Entry",
    "ErrorRecord",
    "Lineage",
    "RunRecord",
    "check_name",
    "now",
]

LONGEST_NAME = 200
RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"
KEPT_RUNS = 10_000
"""So many of the last runs are remembered, and a few more; older ones are forgotten once they are over."""
FORGET_EVERY = 500
TRIES = 10
"""So often a name is given anew while other clients give it too."""


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The plan that made a dataset: as text, as bytes, and which datasets it reads.

    ``plan``    what `squill.plan.serialise.dumps` gave; None when it cannot be kept, and `reason` says why.
    ``inputs``  the datasets that it reads, by name, or by path where they have none.
    """

    explain: str
    inputs: tuple[str, ...] = ()
    plan: bytes | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A dataset as the catalog knows it; `owner` is the cluster that made it, and frees it from its memory."""

    dataset: Dataset
    owner: str


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run of a plan.

    ``action``   what was asked for: collect, run, batches, to_storage, to_memory, to_ipc, or recompute.
    ``dataset``  what it makes: a name, or a path where it has none.
    ``owner``    the cluster whose run it is: host, process, and a name of its own.
    ``state``    running, done, failed or cancelled.
    ``rows``     of the answer, once it is done.
    ``plan``     as text.
    ``folder``   where a run over files keeps what it has done so far.
    ``error``    why it failed, or was cancelled.
    """

    id: str
    action: str
    dataset: str | None = None
    owner: str
    state: str = RUNNING
    started: str
    ended: str | None = None
    rows: int | None = None
    plan: str = ""
    folder: str | None = None
    error: str | None = None

    def __str__(self) -> str:
        made = "" if self.dataset is None else f" {self.dataset}"
        rows = "" if self.rows is None else f", {self.rows} rows"
        return f"{self.id}: {self.action}{made}, {self.state}{rows}, started {self.started}"


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """Why a run failed."""

    run_id: str
    dataset: str | None
    kind: str
    message: str
    at: str


def check_name(name: object, operator: str) -> str:
    """Return what can be a dataset's name, or raise."""
    hint = f"give text of 1 to {LONGEST_NAME} characters."
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise PlanError(f"{operator}: {shortened(name)} is no name", hint)
    if (wrong := unfit_text(name)) is not None:
        raise PlanError(f"{operator}: {name!r} is no name: {wrong}", hint)
    return name


def _may_be_kept(name: object) -> bool:
    """Return whether a database would take this as text; what it would not take it does not have."""
    return isinstance(name, str) and unfit_text(name) is None


class Catalog:
    """Names in a database. Every method is one transaction, so that clients see whole changes only.

    Examples
    --------
    >>> catalog = Catalog("sqlite:///warehouse/catalog.sqlite")
    >>> catalog.names()
    []
    >>> catalog.find("clicks") is None
    True
    >>> catalog.close()
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self.url = self._database.shown

    @staticmethod
    def exists(url: str) -> bool:
        """Whether the catalog may be there already: a file of SQLite's can be looked for, a server is asked."""
        return Database.exists(url)

    def names(self) -> list[str]:
        """Return all names, in order."""
        with self._database.begin() as connection:
            return sorted(connection.scalars(select(datasets.c.name)))

    def entries(self) -> list[Entry]:
        """Return all datasets, by name."""
        with self._database.begin() as connection:
            found = connection.execute(select(datasets).order_by(datasets.c.name)).mappings()
            return [_entry(row) for row in found]

    def find(self, name: str) -> Entry | None:
        """Return a dataset by its name."""
        return self._one(datasets.c.name == name) if _may_be_kept(name) else None

    def find_path(self, path: str) -> Entry | None:
        """Return the dataset that is kept in a folder."""
        return self._one(datasets.c.path == path)

    def _one(self, condition: Any) -> Entry | None:
        with self._database.begin() as connection:
            return _found(connection, condition)

    def require(self, name: str, operator: str) -> Entry:
        """Return a dataset by its name, or raise with the names that are near."""
        entry = self.find(name)
        if entry is None:
            raise DatasetNotFoundError(operator, name, self.names())
        return entry

    def lineage(self, name: str) -> Lineage:
        """Return the plan that made a dataset."""
        if not _may_be_kept(name):
            raise DatasetNotFoundError("lineage", name, self.names())
        with self._database.begin() as connection:
            query = select(lineage).join(datasets).where(datasets.c.name == name)
            row = connection.execute(query).mappings().first()
        if row is None:
            raise DatasetNotFoundError("lineage", name, self.names())
        return Lineage(
            explain=row["explain"], inputs=tuple(json.loads(row["inputs"])), plan=row["plan"], reason=row["reason"]
        )

    def check_free(self, name: object, operator: str, *, overwrite: bool) -> None:
        """Raise when a dataset may not be given this name."""
        name = check_name(name, operator)
        if not overwrite and self.find(name) is not None:
            raise PlanError(
                f"{operator}: there is a dataset {name!r} already",
                f'use another name, or mode="overwrite", or cluster.remove({name!r}) first.',
            )

    def put(
        self,
        entry: Entry,
        made_by: Lineage,
        *,
        overwrite: bool = False,
        is_current: Callable[[], bool] = lambda: True,
    ) -> Entry | None:
        """Add a dataset, in the place of one that has its name when that is allowed; return that one.

        `is_current` is asked when no other client can give the name any more. Where it says no, another dataset has
        taken the folder of this one meanwhile, and its client gives it the name, before or after.
        """
        name = entry.dataset.name
        assert name is not None
        for _ in range(TRIES if overwrite else 1):
            try:
                with self._database.begin() as connection:
                    is_taken = overwrite and _hold(connection, name)
                    if not is_current():
                        return None
                    replaced = _found(connection, datasets.c.name == name) if is_taken else None
                    if is_taken:
                        _delete(connection, name)
                    _insert(connection, entry, made_by)
            except IntegrityError:
                continue  # another client was faster
            return replaced
        raise PlanError(f"there is a dataset {name!r} already: another client was faster", "use another name.")

    def renew(self, entry: Entry) -> None:
        """Take what is known now of a dataset that was made again; its lineage stays."""
        name = entry.dataset.name
        with self._database.begin() as connection:
            number = connection.scalars(select(datasets.c.id).where(datasets.c.name == name)).first()
            if number is not None:
                connection.execute(update(datasets).where(datasets.c.id == number).values(**_values(entry)))
                connection.execute(delete(files).where(files.c.dataset_id == number))
                _insert_files(connection, number, entry.dataset)

    def remove(self, name: str) -> None:
        """Forget a dataset and its lineage; its runs are remembered."""
        with self._database.begin() as connection:
            if _hold(connection, name):
                _delete(connection, name)

    def is_damaged(self, name: str) -> bool:
        """Whether there is a dataset of this name of which nobody can read what it is."""
        if not _may_be_kept(name):
            return False
        with self._database.begin() as connection:
            row = connection.execute(select(datasets).where(datasets.c.name == name)).mappings().first()
        return row is not None and isinstance(_read(row), DAMAGED)

    def forget(self, owner: str, place: str) -> None:
        """Forget the datasets that a cluster has in such a place."""
        theirs = select(datasets.c.name).where((datasets.c.owner == owner) & (datasets.c.place == place))
        with self._database.begin() as connection:
            for name in connection.scalars(theirs).all():
                _delete(connection, name)

    def begin_run(self, record: RunRecord) -> None:
        """Enter a run; one that is known goes on, under another owner."""
        values = {**asdict(record), "state": RUNNING, "ended": None, "rows": None}
        del values["error"]
        with self._database.begin() as connection:
            number = connection.scalars(select(runs.c.number).where(runs.c.id == record.id)).first()
            if number is not None:
                again = {"owner": record.owner, "state": RUNNING, "ended": None, "folder": record.folder}
                connection.execute(update(runs).where(runs.c.number == number).values(**again))
                return
            number = connection.execute(insert(runs).values(**values)).inserted_primary_key[0]  # type: ignore[index]
            if number % FORGET_EVERY == 0:
                _forget_runs(connection, number - KEPT_RUNS)

    def end_run(self, run_id: str, state: str, rows: int | None = None, error: BaseException | None = None) -> None:
        """Say how a run ended."""
        at = now()
        with self._database.begin() as connection:
            changed = update(runs).where(runs.c.id == run_id).values(state=state, ended=at, rows=rows)
            connection.execute(changed)
            number = connection.scalars(select(runs.c.number).where(runs.c.id == run_id)).first()
            if error is not None and number is not None:
                told = {"kind": type(error).__name__, "message": str(error), "at": at}
                connection.execute(insert(errors).values(run_number=number, **told))

    def runs(self) -> list[RunRecord]:
        """Return all runs, the first one first."""
        return self._runs(select(runs).order_by(runs.c.number))

    def find_run(self, run_id: str) -> RunRecord | None:
        """Return a run by its id."""
        found = self._runs(select(runs).where(runs.c.id == run_id)) if _may_be_kept(run_id) else []
        return found[0] if found else None

    def _runs(self, query: Select[Any]) -> list[RunRecord]:
        with self._database.begin() as connection:
            found = list(connection.execute(query).mappings())
            of_found = errors.c.run_number.in_([row["number"] for row in found]) if len(found) == 1 else true()
            said = select(errors.c.run_number, errors.c.message).where(of_found).order_by(errors.c.id)
            why: dict[int, str] = {row[0]: row[1] for row in connection.execute(said)}
        names = [entry.name for entry in fields(RunRecord) if entry.name != "error"]
        return [RunRecord(**{name: row[name] for name in names}, error=why.get(row["number"])) for row in found]

    def errors(self) -> list[ErrorRecord]:
        """Return why runs failed, the first one first."""
        columns = (runs.c.id.label("run_id"), runs.c.dataset, errors.c.kind, errors.c.message, errors.c.at)
        query = select(*columns).select_from(errors).join(runs).order_by(errors.c.id)
        with self._database.begin() as connection:
            return [ErrorRecord(**row) for row in connection.execute(query).mappings()]

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _found(connection: Connection, condition: Any) -> Entry | None:
    row = connection.execute(select(datasets).where(condition)).mappings().first()
    return None if row is None else _entry(row)


def _entry(row: Any) -> Entry:
    dataset = _read(row)
    if isinstance(dataset, Dataset):
        return Entry(dataset=dataset, owner=row["owner"])
    raise ClusterError(
        f"catalog: what it says of the dataset {row['name']!r} cannot be read: {type(dataset).__name__}: {dataset}",
        f"cluster.remove({row['name']!r}) forgets it, and leaves its files; then make it again.",
    ) from dataset


def _read(row: Any) -> Dataset | Exception:
    """Return the dataset of a row, or what is wrong with its manifest."""
    try:
        return Dataset.from_json(row["manifest"], row["path"], row["place"])
    except SourceReadError:
        raise  # of another version of Squill: that is whole
    except DAMAGED as error:
        return error


def _values(entry: Entry) -> dict[str, Any]:
    dataset = entry.dataset
    return {
        "name": dataset.name,
        "place": dataset.place,
        "path": dataset.path,
        "owner": entry.owner,
        "rows": dataset.rows,
        "bytes": dataset.bytes,
        "created": dataset.created,
        "manifest": dataset.to_json(),
    }


def _insert(connection: Connection, entry: Entry, made_by: Lineage) -> None:
    values = {
        "explain": made_by.explain,
        "inputs": json.dumps(made_by.inputs),
        "plan": made_by.plan,
        "reason": made_by.reason,
    }
    made = connection.execute(insert(lineage).values(**values)).inserted_primary_key[0]  # type: ignore[index]
    added = connection.execute(insert(datasets).values(lineage_id=made, **_values(entry)))
    _insert_files(connection, added.inserted_primary_key[0], entry.dataset)  # type: ignore[index]


def _insert_files(connection: Connection, number: int, dataset: Dataset) -> None:
    rows: Sequence[dict[str, Any]] = [
        {"dataset_id": number, "number": i, "shard": file.shard, "path": path, "rows": file.rows, "bytes": file.bytes}
        for i, (file, path) in enumerate(zip(dataset.files, dataset.paths, strict=True))
    ]
    if rows:
        connection.execute(insert(files), rows)


def _hold(connection: Connection, name: str) -> bool:
    """Let other clients that give or take this name wait until the transaction ends; False where nobody has it."""
    this = datasets.c.name == name
    # Who has waited for one that gave it to another dataset has changed neither: it is to look again.
    while not connection.execute(update(datasets).where(this).values(name=name)).rowcount:
        if connection.scalars(select(datasets.c.id).where(this)).first() is None:
            return False
    return True


def _delete(connection: Connection, name: str) -> None:
    for number, made in connection.execute(
        select(datasets.c.id, datasets.c.lineage_id).where(datasets.c.name == name)
    ).all():
        connection.execute(delete(files).where(files.c.dataset_id == number))
        connection.execute(delete(datasets).where(datasets.c.id == number))
        connection.execute(delete(lineage).where(lineage.c.id == made))


def _forget_runs(connection: Connection, before: int) -> None:
    old = select(runs.c.number).where((runs.c.number <= before) & (runs.c.state != RUNNING))
    connection.execute(delete(errors).where(errors.c.run_number.in_(old)))
    connection.execute(delete(runs).where(runs.c.number.in_(old)))


def now() -> str:
    """Return the moment as the catalog writes it."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
