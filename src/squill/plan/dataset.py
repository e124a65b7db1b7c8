"""Stored answers: a folder of files, one per shard, and the manifest that says what they are.

A folder is a dataset when it holds ``_squill/manifest.json``. The manifest is written with the files and becomes
visible with them, in one step; what it does not name is not part of the dataset.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from squill.errors import SourceReadError
from squill.plan.assignment import Assignment, Hashed, assignment_from
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource
from squill.plan.paths import local_text, path_text
from squill.plan.routing import KEY_HASH_VERSION
from squill.plan.schema import TIME_COLUMNS, Schema
from squill.time import TimeType

__all__ = [
    "DAMAGED", "MANIFEST", "MEMORY", "STATE", "STORAGE", "Dataset", "ShardFile", "find_dataset", "is_damaged",
    "read_dataset", "stored_sources",
]  # fmt: skip

MANIFEST = "_squill/manifest.json"
STATE = "_squill/state"
VERSION = 1
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError)
"""What reading a manifest raises that is not one, or not whole."""
STORAGE, MEMORY = "storage", "memory"


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """The rows of one shard; `low` and `high` bound their lifetimes in ticks, None when there are no rows or times."""

    shard: int
    name: str
    rows: int
    bytes: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Dataset:
    """An answer that is kept.

    ``path``       the folder; of one in the memory of this process its address there.
    ``place``      "storage" or "memory".
    ``version``    names the run that wrote it; files of another version have other names.
    ``columns``    all columns of the files, `start` and `end` first when the rows have lifetimes.
    ``timed``      whether they have.
    ``duration``   the one length in ticks of all lifetimes, when it is known.
    ``keys``       the columns that group queries over it.
    ``placed_by``  the columns whose hash decides a row's shard; None when that is not known.
    ``lineage``    the plan that made it, as text.
    ``keeps_state``  whether the folder also holds what a live query needs to go on from it.
    ``progress``   when rows take part in early answers, in whose order the rows of each file are.
    """

    name: str | None = None
    path: str
    place: str = STORAGE
    format: str
    version: str
    created: str
    columns: Schema
    timed: bool
    duration: int | None = None
    keys: tuple[str, ...] = ()
    placed_by: tuple[str, ...] | None = None
    shards: int
    files: tuple[ShardFile, ...]
    lineage: str = ""
    keeps_state: bool = False
    progress: Assignment | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def schema(self) -> Schema:
        """The payload columns."""
        return self.columns.only(name for name in self.columns if not (self.timed and name in TIME_COLUMNS))

    @property
    def time(self) -> TimeType | None:
        return TimeType.of(self.columns["start"]) if self.timed else None

    @property
    def time_range(self) -> tuple[str, str] | None:
        """From the earliest start to the latest end, as people write them; None without rows or times."""
        lows = [file.low for file in self.files if file.low is not None]
        highs = [file.high for file in self.files if file.high is not None]
        return None if self.time is None or not lows else (self.time.show(min(lows)), self.time.show(max(highs)))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in the order of `files`."""
        return tuple(str(Path(self.path) / file.name) for file in self.files)

    def lost(self) -> list[ShardFile]:
        """Return the files that are not there, or are not as long as they were."""
        found = zip(self.files, map(Path, self.paths), strict=True)
        return [file for file, path in found if not path.is_file() or path.stat().st_size != file.bytes]

    def __str__(self) -> str:
        key = f", keyed by {', '.join(self.keys)}" if self.keys else ""
        order = "" if self.progress is None else f", in the order of {self.progress}"
        return f"{self.name or self.path}: {self.rows} rows on {self.shards} shards in {self.place}{key}{order}"

    def __repr__(self) -> str:
        return f"Dataset({self})"

    def to_json(self) -> str:
        """Return the manifest. Types stand in it twice: for people, and as an empty Arrow file, which loses nothing."""
        span = self.time_range
        return json.dumps(
            {
                "squill_dataset": VERSION,
                "name": self.name,
                "version": self.version,
                "created": self.created,
                "format": self.format,
                "rows": self.rows,
                "schema": {name: str(dtype) for name, dtype in self.columns.items()},
                "time": None if self.time is None else str(self.time),
                "time_range": None if span is None else list(span),
                "duration": self.duration,
                "key": list(self.keys),
                "sharding": {
                    "shards": self.shards,
                    "hash_of": None if self.placed_by is None else list(self.placed_by),
                    "hash_version": KEY_HASH_VERSION,
                },
                "files": [asdict(file) for file in self.files],
                "lineage": self.lineage.splitlines(),
                "keeps_state": self.keeps_state,
                "progress": None if self.progress is None else self.progress.to_values(),
                "arrow_schema": base64.b64encode(_schema_bytes(self.columns)).decode(),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str, path: str, place: str = STORAGE) -> Dataset:
        """Return what `to_json` has written; `path` is where the folder is now."""
        values = json.loads(text)
        version = values["squill_dataset"]
        if version != VERSION:
            raise SourceReadError(
                f"{path!r} is a dataset of format {version}, and this version of Squill reads format {VERSION}",
                "read it with the version that wrote it, or write it again.",
            )
        return cls(
            name=values["name"],
            path=path,
            place=place,
            format=values["format"],
            version=values["version"],
            created=values["created"],
            columns=_schema_from(base64.b64decode(values["arrow_schema"])),
            timed=values["time"] is not None,
            duration=values["duration"],
            keys=tuple(values["key"]),
            placed_by=_placed_by(values["sharding"]),
            shards=values["sharding"]["shards"],
            files=tuple(ShardFile(**file) for file in values["files"]),
            lineage="\n".join(values["lineage"]),
            keeps_state=values.get("keeps_state", False),
            progress=_progress(values),
        )


def _placed_by(sharding: Mapping[str, Any]) -> tuple[str, ...] | None:
    # Another hash puts keys on other shards: nothing is known then.
    if sharding["hash_of"] is None or sharding["hash_version"] != KEY_HASH_VERSION:
        return None
    return tuple(sharding["hash_of"])


def _progress(values: Mapping[str, Any]) -> Assignment | None:
    given = values.get("progress")
    progress = None if given is None else assignment_from(given)
    # By another hash rows come at other steps than equal values of other inputs.
    is_old = isinstance(progress, Hashed) and values["sharding"]["hash_version"] != KEY_HASH_VERSION
    return None if is_old else progress


def _schema_bytes(schema: Schema) -> bytes:
    buffer = io.BytesIO()
    schema.empty_frame().write_ipc(buffer)
    return buffer.getvalue()


def _schema_from(data: bytes) -> Schema:
    return Schema(pl.read_ipc(io.BytesIO(data)).schema)


def find_dataset(path: object, operator: str = "scan") -> Dataset | None:
    """Return the dataset in a folder, or None where there is none, or several paths are given."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    local = local_text(path_text(path, operator))
    if local is None:
        return None  # datasets are written to folders of the hosts
    folder = Path(local)
    try:
        is_there = (folder / MANIFEST).is_file()
    except OSError as error:
        raise SourceReadError(
            f"{operator}: what is in {local!r} cannot be looked at: {error.strerror}", "may you read the folder?"
        ) from error
    return read_dataset(folder) if is_there else None


def read_dataset(folder: Path) -> Dataset:
    """Return what the manifest of a folder says."""
    try:
        return Dataset.from_json((folder / MANIFEST).read_text(encoding="utf-8"), str(folder.resolve()))
    except (OSError, *DAMAGED) as error:
        if isinstance(error, SourceReadError):
            raise
        raise SourceReadError(
            f"the manifest of the dataset {str(folder)!r} cannot be read: {type(error).__name__}: {error}",
            "remove the folder, or write the dataset again.",
        ) from error


def is_damaged(folder: str | os.PathLike[str]) -> bool:
    """Whether the manifest of a folder was cut short, or is none; that of a later version of Squill is whole."""
    try:
        json.loads((Path(folder) / MANIFEST).read_bytes())
    except OSError:
        return False
    except ValueError:
        return True
    return False


def stored_sources(root: Node) -> list[FileSource | FrameSource]:
    """Return the sources of a plan that are datasets."""
    sources = [node for node in walk(root) if isinstance(node, (FileSource, FrameSource))]
    return [source for source in sources if source.stored is not None]
