"""Rows that come in the order of progress, which takes the place of time.

A query over time has a time already. Its rows come with progress in the place of time too, and carry their own
lifetimes in two columns, `BEGINS` and `ENDS`; `EachStep` runs the query on the rows of one step after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from squill.plan.assignment import Assignment
from squill.plan.codec import Codec
from squill.plan.node import Node
from squill.plan.nodes.sources import Source
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import INFINITY, PROGRESS, TimeType

__all__ = [
    "BEGINS",
    "ENDS",
    "EachStep",
    "NumberedPart",
    "ProgressSource",
    "StepQuery",
    "shown_schema",
    "with_lifetimes",
]

BEGINS, ENDS = "__squill_begins__", "__squill_ends__"
"""The columns that lifetimes stand in, in ticks, where progress has the place of time."""

AS_TIME, AS_COLUMNS = "time", "columns"


@dataclass(frozen=True, slots=True)
class NumberedPart:
    """Rows of one split of an input: `rows` of them from row `first` of the split on, or all that follow.

    ``split``   the split's number, ``offset`` its first row's place in the file at `path`, or in the frame.
    ``length``  how many rows the split has; None where that is known once it is read.
    ``held``    the row of the split with which a frame begins that has not all of its rows.
    """

    split: int
    first: int = 0
    rows: int | None = None
    path: str | None = None
    offset: int = 0
    length: int | None = None
    held: int = 0

    def is_followed_by(self, other: NumberedPart) -> bool:
        """Whether the other begins, in the same file, where this one ends."""
        if self.path is None or self.path != other.path or self.rows is None or other.rows is None:
            return False
        return self.offset + self.first + self.rows == other.offset + other.first


def with_lifetimes(schema: Schema) -> Schema:
    """Return the columns of rows that carry their lifetimes."""
    return Schema({**schema, BEGINS: pl.Int64(), ENDS: pl.Int64()})


def shown_schema(root: Node) -> Schema:
    """Return the columns of an answer as people get them."""
    if root.time is None or root.properties.per_window:
        return root.schema
    return Schema({"start": root.time.dtype, "end": root.time.dtype, **root.schema})


@dataclass(frozen=True, kw_only=True)
class ProgressSource(Source):
    """The rows of a `source`, each alive where `assignment` says it is there.

    ``coarsen``  progress points are multiples of it.
    ``parts``    which rows of how many `splits` are read, by the reader of this number; None is all.
    ``lengths``  how many rows each split has, where rows are numbered over them; none where that is not known.
    ``given``    the first step of each row, split by split, where it takes all rows to tell.
    ``tally``    is told when how many rows come and go, once all are read.
    ``in_order`` whether the rows are stored in this order, with their steps.
    ``brief``    whether the rows are alive at their own step only: those of later ones never meet them.
    ``wanted``   the point from which on rows are wanted; where they are stored in order, none before it is read that
                 can be left out.
    ``lifetimes`` where the rows of a source over time have their lifetimes: "columns" when progress has the place of
                 time, "time" as the query sees them that runs on the rows of one step; "" they have none.
    """

    source: Source
    assignment: Assignment
    coarsen: int = 1
    parts: tuple[NumberedPart, ...] | None = None
    reader: int = 0
    splits: int = 0
    lengths: tuple[int, ...] = ()
    given: Sequence[Any] | None = field(default=None, compare=False)
    tally: Any = field(default=None, compare=False)
    in_order: bool = False
    brief: bool = False
    wanted: int = 0
    lifetimes: str = ""

    @cached_property
    def schema(self) -> Schema:
        return with_lifetimes(self.source.schema) if self.is_timed else self.source.schema

    @property
    def is_timed(self) -> bool:
        """Whether rows carry lifetimes."""
        return self.lifetimes == AS_COLUMNS and self.source.time is not None

    @cached_property
    def time(self) -> TimeType | None:
        return self.source.time if self.lifetimes == AS_TIME else PROGRESS

    @cached_property
    def properties(self) -> Properties:
        if self.lifetimes == AS_TIME:
            return self.source.properties
        return Properties(duration=1) if self.brief else Properties(endless=not self.assignment.has_ends)

    @property
    def lasting(self) -> int:
        """How long rows are alive whose end nobody tells."""
        return 1 if self.brief else INFINITY

    def details(self) -> str:
        coarse = "" if self.coarsen == 1 else f", coarsened by {self.coarsen}"
        stored = ", stored in this order" if self.in_order else ""
        brief = ", at one step each" if self.brief else ""
        return f"{self.source.name}({self.source.details()}), progress {self.assignment}{coarse}{stored}{brief}"


@dataclass(frozen=True)
class StepQuery:
    """A query over time, for the rows of one step: its sources stand for the inputs of `EachStep`, in their order.

    ``whole``  the inputs of which every step has all rows.
    """

    root: Node
    whole: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class EachStep(Node):
    """What a query over time gives on the rows of each step, from that step on: no two steps ever meet in it.

    ``shows``  whether the rows are the answer, as people get it; else they carry their lifetimes, as inputs' do.
    """

    parents: tuple[Node, ...]
    query: StepQuery
    shows: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parents

    @cached_property
    def schema(self) -> Schema:
        root = self.query.root
        if self.shows:
            return shown_schema(root)
        return root.schema if root.time is None else with_lifetimes(root.schema)

    @cached_property
    def time(self) -> TimeType:
        return PROGRESS

    @cached_property
    def properties(self) -> Properties:
        return Properties(endless=True)

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return self.query.root.codecs

    def details(self) -> str:
        return f"{self.query.root.name}({self.query.root.details()})"
