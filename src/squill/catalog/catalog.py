"""`Catalog`: names for datasets, and how each of them came to be."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from squill.catalog.database import Database
from squill.catalog.tables import datasets, errors, files, lineage, runs
from squill.errors import DatasetNotFoundError, PlanError
from squill.plan.dataset import Dataset

__all__ = ["Catalog", "Entry", "ErrorRecord", "Lineage", "RunRecord"]

LONGEST_NAME = 200
RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"


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
    """One action that made, or was to make, a dataset."""

    id: int
    action: str
    dataset: str
    owner: str
    state: str
    started: str
    ended: str | None
    rows: int | None


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """Why a run failed."""

    run_id: int
    dataset: str
    kind: str
    message: str
    at: str


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
        return self._one(datasets.c.name == name)

    def find_path(self, path: str) -> Entry | None:
        """Return the dataset that is kept in a folder."""
        return self._one(datasets.c.path == path)

    def _one(self, condition: Any) -> Entry | None:
        with self._database.begin() as connection:
            row = connection.execute(select(datasets).where(condition)).mappings().first()
            return None if row is None else _entry(row)

    def require(self, name: str, operator: str) -> Entry:
        """Return a dataset by its name, or raise with the names that are near."""
        entry = self.find(name)
        if entry is None:
            raise DatasetNotFoundError(operator, name, self.names())
        return entry

    def lineage(self, name: str) -> Lineage:
        """Return the plan that made a dataset."""
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
        if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
            raise PlanError(f"{operator}: {name!r} is no name", f"give text of 1 to {LONGEST_NAME} characters.")
        if not overwrite and self.find(name) is not None:
            raise PlanError(
                f"{operator}: there is a dataset {name!r} already",
                f'use another name, or mode="overwrite", or cluster.remove({name!r}) first.',
            )

    def put(self, entry: Entry, made_by: Lineage, *, overwrite: bool = False) -> None:
        """Add a dataset, in the place of one that has its name when that is allowed."""
        name = entry.dataset.name
        assert name is not None
        try:
            with self._database.begin() as connection:
                if overwrite:
                    _delete(connection, name)
                _insert(connection, entry, made_by)
        except IntegrityError:
            raise PlanError(
                f"there is a dataset {name!r} already: another client was faster", "use another name."
            ) from None

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
            _delete(connection, name)

    @contextmanager
    def run(self, action: str, dataset: str, owner: str) -> Iterator[_Run]:
        """Record a run while in context; how the context is left says how it ended."""
        values = {"action": action, "dataset": dataset, "owner": owner, "state": RUNNING, "started": _now()}
        with self._database.begin() as connection:
            number = connection.execute(insert(runs).values(**values)).inserted_primary_key[0]  # type: ignore[index]
        record = _Run()
        try:
            yield record
        except BaseException as error:
            self._end_run(number, FAILED if isinstance(error, Exception) else CANCELLED, None, error)
            raise
        self._end_run(number, DONE, record.rows, None)

    def _end_run(self, number: int, state: str, rows: int | None, error: BaseException | None) -> None:
        with self._database.begin() as connection:
            connection.execute(update(runs).where(runs.c.id == number).values(state=state, ended=_now(), rows=rows))
            if error is not None:
                told = {"kind": type(error).__name__, "message": str(error), "at": _now()}
                connection.execute(insert(errors).values(run_id=number, **told))

    def runs(self) -> list[RunRecord]:
        """Return all runs, the first one first."""
        with self._database.begin() as connection:
            return [RunRecord(**row) for row in connection.execute(select(runs).order_by(runs.c.id)).mappings()]

    def errors(self) -> list[ErrorRecord]:
        """Return why runs failed, the first one first."""
        columns = (errors.c.run_id, runs.c.dataset, errors.c.kind, errors.c.message, errors.c.at)
        with self._database.begin() as connection:
            found = connection.execute(select(*columns).join(runs).order_by(errors.c.id)).mappings()
            return [ErrorRecord(**row) for row in found]

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


class _Run:
    """What a run tells of itself."""

    rows: int | None = None


def _entry(row: Any) -> Entry:
    dataset = Dataset.from_json(row["manifest"], row["path"], row["place"])
    return Entry(dataset=dataset, owner=row["owner"])


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


def _delete(connection: Connection, name: str) -> None:
    for number, made in connection.execute(
        select(datasets.c.id, datasets.c.lineage_id).where(datasets.c.name == name)
    ).all():
        connection.execute(delete(files).where(files.c.dataset_id == number))
        connection.execute(delete(datasets).where(datasets.c.id == number))
        connection.execute(delete(lineage).where(lineage.c.id == made))


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
