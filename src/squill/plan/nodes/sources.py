"""Where events come from. Sources own the disorder policy; downstream nothing is ever late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import MINUS_INFINITY, TimeType

if TYPE_CHECKING:
    from squill.plan.assignment import Assignment

__all__ = [
    "KEEP_LATE",
    "Disorder",
    "EventsSource",
    "FedSource",
    "FilePart",
    "FileSource",
    "FrameSource",
    "GivenSource",
    "Lifetime",
    "Promises",
    "PushSource",
    "Source",
    "Stored",
]

KEEP_LATE = 100_000
"""How many late rows a source keeps aside unless the user says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Disorder:
    """What happens to an event below the current time; `wait` is how long stragglers are waited for."""

    policy: str
    wait: int | str | Any = 0


@dataclass(frozen=True, kw_only=True)
class Promises:
    """What the user says of the data; checked while it is read unless `trust`."""

    sorted_by: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    duration: int | None = None
    unique: tuple[str, ...] = ()
    trust: bool = False


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """How times are read off an input's rows.

    `start` and `end` are expressions over the input's own columns; without `end` an event is a point or,
    with `kind` "open", endless. With `null_start` a null start is minus infinity, as stored answers have it.
    """

    start: Expression
    end: Expression | None = None
    kind: str = "point"
    keep_time: bool = False
    null_start: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """The input's columns that the times are read off."""
        return self.start.roots if self.end is None else (*self.start.roots, *self.end.roots)

    @property
    def consumed(self) -> tuple[str, ...]:
        """The plain columns that leave the payload because they became the time."""
        if self.keep_time:
            return ()
        times = (self.start, self.end) if self.end is not None else (self.start,)
        return tuple(item.source_column for item in times if item.source_column is not None)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is known of the rows of a dataset.

    ``folder``     where the dataset is.
    ``name``       what the catalog calls it, and ``version`` the run that made it.
    ``shard_of``   file by file, in the order of the source's paths, the shard whose rows it holds, of `shards`.
    ``rows``       of a dataset that is a frame: how many rows each shard has in it.
    ``keys``       the columns that group queries over it.
    ``placed_by``  the columns whose hash names a row's shard; None when that is not known.
    ``progress``   when rows take part in early answers, if their files are in that order.
    """

    folder: str
    shards: int
    shard_of: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    name: str | None = None
    version: str = ""
    keys: tuple[str, ...] = ()
    placed_by: tuple[str, ...] | None = None
    progress: Assignment | None = None


@dataclass(frozen=True, kw_only=True)
class Source(Node):
    """Base of all sources: the input's own columns, and how lifetimes are read off them."""

    keeps_state: ClassVar[bool] = False

    label: str
    columns: Schema
    lifetime: Lifetime | None
    promises: Promises = Promises()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        consumed = self.lifetime.consumed if self.lifetime is not None else ()
        return Schema((name, dtype) for name, dtype in self.columns.items() if name not in consumed)

    @cached_property
    def time(self) -> TimeType | None:
        return None if self.lifetime is None else TimeType.of(self.lifetime.start.dtype, self.lifetime.start.name)

    @cached_property
    def properties(self) -> Properties:
        if self.lifetime is None:
            return Properties(endless=True)
        if self.lifetime.end is not None:
            return Properties(duration=self.promises.duration)
        if self.lifetime.kind == "open":
            return Properties(endless=True)
        return Properties(duration=1)

    def details(self) -> str:
        times = ""
        if self.lifetime is not None:
            times = f", start={self.lifetime.start.name}"
            times += f", end={self.lifetime.end.name}" if self.lifetime.end is not None else ""
        return f"{self.label}{times}, {len(self.schema)} columns"


def _only(predicate: Expression | None) -> str:
    return "" if predicate is None else f", only {str(predicate).partition('=')[2] or predicate}"


@dataclass(frozen=True, kw_only=True)
class GivenSource(Source):
    """Base of sources whose rows come with their lifetimes: the time and the properties are given."""

    time_type: TimeType | None
    known: Properties

    @cached_property
    def time(self) -> TimeType | None:
        return self.time_type

    @cached_property
    def properties(self) -> Properties:
        return self.known


@dataclass(frozen=True, kw_only=True)
class FrameSource(Source):
    """Rows of a frame in memory."""

    frame: pl.DataFrame = field(compare=False)
    frame_id: int
    predicate: Expression | None = None
    """A filter that comes before times are checked and sorted, pushed down."""
    blocks: tuple[tuple[int, int], ...] = ()
    """Of a split: the blocks that `frame` holds one after the other, as (number of the first row in the whole
    frame, rows). Each is read for itself, so that rows leave before all are read."""
    stored: Stored | None = None
    """Whose rows they are, when they are a dataset of ours."""

    def details(self) -> str:
        held = ""
        if self.blocks:
            rows = sum(size for _, size in self.blocks)
            held = f", {rows:,} rows in {len(self.blocks)} block{'s' if len(self.blocks) > 1 else ''}"
        return Source.details(self) + held + _only(self.predicate)


SHOWN_PARTS = 3

UNITS = {"parquet": "rows", "ipc": "batches", "csv": "bytes", "ndjson": "bytes"}
"""What the parts of a file are counted in; parts of rows are whole row groups, parts of bytes whole lines."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file, which is read for itself: `size` units from `first` on, or all that follows.

    `low` is a time that none of its rows is before, `hosts` those that have the file, if that is known.
    """

    path: str
    first: int = 0
    size: int | None = None
    low: int = MINUS_INFINITY
    hosts: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.first == 0 and self.size is None

    def is_followed_by(self, other: FilePart) -> bool:
        """Whether the other begins where this one ends."""
        return self.path == other.path and self.size is not None and self.first + self.size == other.first

    def joined(self, other: FilePart) -> FilePart:
        """Return this part and the one that follows it as one."""
        assert self.size is not None
        size = None if other.size is None else self.size + other.size
        return replace(self, size=size, low=min(self.low, other.low))

    def describe(self, file_format: str) -> str:
        """Return the part as explain shows it."""
        if self.is_whole:
            return self.path
        end = "" if self.size is None else self.first + self.size
        return f"{self.path} {UNITS[file_format]} {self.first}..{end}"


@dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    """Rows of parquet, csv, ndjson or ipc files, read in pieces.

    ``names_files``  whether errors name the file that a row stands in, and not the input.
    """

    names_files: ClassVar[bool] = True

    paths: tuple[str, ...]
    format: str
    read: tuple[str, ...] | None = None
    """The payload columns that are needed, once pushed down; None is all."""
    predicate: Expression | None = None
    """A filter on the files' own columns, pushed down."""
    parts: tuple[FilePart, ...] | None = None
    """Of a split: what it reads of `paths`; None is all."""
    stored: Stored | None = None
    """Whose files they are, when they are a dataset of ours."""
    folder_columns: tuple[str, ...] = ()
    """Columns that no file holds: the folders that it is in tell them, `year=2024`."""
    is_given: bool = field(default=False, compare=False)
    """Whether the user has said which columns to read."""

    @cached_property
    def file_columns(self) -> Schema:
        """The columns that are in the files."""
        return self.columns.only(name for name in self.columns if name not in self.folder_columns)

    @cached_property
    def schema(self) -> Schema:
        payload = Source.schema.func(self)  # type: ignore[attr-defined]
        return payload if self.read is None else payload.only(name for name in payload if name in self.read)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The files' columns that must be read."""
        times = () if self.lifetime is None else self.lifetime.roots
        promised = (*self.promises.sorted_by, *self.promises.packed, *self.promises.unique)
        needed = {*self.schema, *times, *(() if self.promises.trust else promised)}
        return tuple(name for name in self.columns if name in needed) or self.columns.names[:1]

    def details(self) -> str:
        shown = Source.details(self)
        files = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} files"
        shown = f"{self.format} {files}, {shown}"
        if self.parts is not None:
            first = "".join(f" {part.describe(self.format)};" for part in self.parts[:SHOWN_PARTS])
            more = " …" if len(self.parts) > SHOWN_PARTS else ""
            shown += f", {len(self.parts)} parts:{first}{more}".rstrip(":;")
        if self.read is not None:
            shown += f", read=[{', '.join(self.read)}]"
        return shown + _only(self.predicate)


@dataclass(frozen=True, kw_only=True)
class EventsSource(Source):
    """Single events in arrival order: points, intervals, edges, punctuations."""

    events: Sequence[Any] = field(compare=False)
    events_id: int
    disorder: Disorder
    has_edges: bool
    time_type: TimeType

    @cached_property
    def time(self) -> TimeType:
        return self.time_type

    @cached_property
    def properties(self) -> Properties:
        return Properties(ends_known=not self.has_edges)


@dataclass(frozen=True, kw_only=True)
class PushSource(Source):
    """Rows that the program pushes while the query runs."""

    source: Any = field(compare=False)
    source_id: int
    disorder: Disorder
    punctuate_every: int | None = None


@dataclass(frozen=True, kw_only=True)
class FedSource(Source):
    """Rows that somebody else's task feeds, batch by batch; with a policy for late ones if it is to stream them."""

    disorder: Disorder | None = None

    @property
    def comes_in_order(self) -> bool:
        """Whether rows need not wait for all the others before they are in the order of time."""
        if self.lifetime is None:
            return True
        start = self.lifetime.start.source_column
        return start is not None and self.promises.sorted_by[:1] == (start,)
