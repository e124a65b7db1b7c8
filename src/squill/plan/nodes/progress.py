"""Sources whose rows come in the order of progress, which takes the place of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from squill.plan.assignment import Assignment
from squill.plan.nodes.sources import Source
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import INFINITY, PROGRESS, TimeType

__all__ = ["NumberedPart", "ProgressSource"]


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


@dataclass(frozen=True, kw_only=True)
class ProgressSource(Source):
    """The rows of a relational `source`, each alive where `assignment` says it is there.

    ``coarsen``  progress points are multiples of it.
    ``parts``    which rows of how many `splits` are read, by the reader of this number; None is all.
    ``given``    the first step of each row, split by split, where it takes all rows to tell.
    ``tally``    is told when how many rows come and go, once all are read.
    ``in_order`` whether the rows are stored in this order, with their steps.
    ``brief``    whether the rows are alive at their own step only: those of later ones never meet them.
    ``wanted``   the point from which on rows are wanted; where they are stored in order, none before it is read that
                 can be left out.
    """

    source: Source
    assignment: Assignment
    coarsen: int = 1
    parts: tuple[NumberedPart, ...] | None = None
    reader: int = 0
    splits: int = 0
    given: Sequence[Any] | None = field(default=None, compare=False)
    tally: Any = field(default=None, compare=False)
    in_order: bool = False
    brief: bool = False
    wanted: int = 0

    @cached_property
    def schema(self) -> Schema:
        return self.source.schema

    @cached_property
    def time(self) -> TimeType:
        return PROGRESS

    @cached_property
    def properties(self) -> Properties:
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
