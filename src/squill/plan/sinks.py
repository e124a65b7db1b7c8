"""Where the answer of a live query is to go: what `start` is told. What writes there is the runtime's."""

from __future__ import annotations

import os
from dataclasses import dataclass

from squill.arguments import is_one_of
from squill.errors import PlanError
from squill.plan.paths import written_path
from squill.wording import shortened

__all__ = ["SUFFIXES", "Folder", "Table", "folder", "table"]

SUFFIXES = {"parquet": ".parquet", "ipc": ".arrow"}
"""How the files of a folder end, by format."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of files as a sink; made by `sq.folder`, or by a plain path for parquet."""

    path: str
    format: str = "parquet"


@dataclass(frozen=True)
class Table:
    """A table of Spark's catalog as a sink; made by `sq.table`."""

    name: str


def folder(path: str | os.PathLike[str], format: str = "parquet") -> Folder:  # noqa: A002  (the public name)
    """Return a folder as the sink of a live query: a file for each epoch and shard that has rows.

    `format` is "parquet" or "ipc". A plain path as sink is a folder of parquet files.
    """
    if not is_one_of(format, SUFFIXES):
        raise PlanError(f"folder: format is {shortened(format)}", f"use one of {', '.join(SUFFIXES)}.")
    return Folder(path=str(written_path(path, "folder")), format=format)


def table(name: str) -> Table:
    """Return a table of Spark's catalog as the sink of a live query, which is made if need be and appended to."""
    if not isinstance(name, str) or not name:
        raise PlanError(f"table: {shortened(name)} is no name", 'give one such as "db.counts".')
    return Table(name)
