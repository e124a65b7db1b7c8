"""Assignments: at which progress points each row of an input is there.

Progress points are whole numbers from 0 on. A row has a first one and perhaps an end, which is excluded; a row
without an end stays. Rows are numbered round robin over a fixed list of splits (the row groups of parquet files,
else the files; a frame is one), each giving one row at a time as long as it has any: row j of split s of S splits of
one length is number j·S + s. So every split feeds every step, and there are no gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import polars as pl

from squill.errors import PlanError
from squill.plan.build.checks import check_key_type
from squill.plan.schema import Schema
from squill.time import INFINITY
from squill.wording import shortened

__all__ = [
    "Assignment",
    "AtStart",
    "Columns",
    "Exponential",
    "Fractions",
    "Hashed",
    "Promising",
    "Rows",
    "Stratified",
    "assignment_from",
    "names_of",
    "whole",
]

MOST_STEPS = 2**31 - 1
STEP = "__squill_step__"
"""The column of a dataset in progress order that has the first progress point of each row."""


def whole(value: object, least: int, what: str, hint: str, most: int = INFINITY - 1) -> int:
    """Return a whole number from `least` to `most`, or raise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PlanError(f"{what} is {shortened(value)}", f"give a whole number of at least {least}{hint}.")
    if value > most:
        raise PlanError(f"{what} is {value}", f"give at most {most}.")
    return value


def names_of(given: object, what: str) -> tuple[str, ...]:
    """Return one or several column names as a tuple, or raise."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise PlanError(
            f"{what}: {shortened(given)} does not name columns", 'give a name, or a list of names: ["user", "ad"].'
        )
    if len(set(names)) < len(names):
        raise PlanError(f"{what}: {shortened(given)} names a column twice", "name each column once.")
    return names


@dataclass(frozen=True)
class Assignment:
    """Base: which columns it reads, whether rows may leave again, and how many steps it has for sure.

    ``leaves_gaps``  False when all points from 0 to the last are steps, also those at which no row comes.
    """

    leaves_gaps: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The input's columns that it reads."""
        return ()

    @property
    def has_ends(self) -> bool:
        return False

    @property
    def least_steps(self) -> int:
        """How many steps there are even where no row comes."""
        return 0

    @property
    def order(self) -> Assignment:
        """The assignment without what is promised of it: rows come in the same order."""
        return self

    def check(self, columns: Schema, where: str) -> None:
        """Raise when the columns of rows do not fit; `where` says whose they are."""
        for name in self.columns:
            columns.require(name, where)

    def _check_keys(self, columns: Schema, where: str) -> None:
        for name in self.columns:
            check_key_type(where, name, columns[name])

    def to_values(self) -> dict[str, Any]:
        """Return it as plain values, which `assignment_from` understands; promises are not among them.

        >>> Hashed(("user",), 4).to_values()
        {'kind': 'Hashed', 'names': ['user'], 'steps': 4}
        """
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"kind": type(self).__name__, **{name: values[name] for name in values if name not in PROMISES}}


PROMISES = ("together", "trust")


@dataclass(frozen=True)
class Promising(Assignment):
    """Base: rows of equal values in the columns `together` come at one point, in every input that promises it.

    ``trust``  nobody checks it.
    """

    together: tuple[str, ...] = field(default=(), kw_only=True)
    trust: bool = field(default=False, kw_only=True)

    @property
    def order(self) -> Assignment:
        return replace(self, together=(), trust=False)

    def check(self, columns: Schema, where: str) -> None:
        super().check(columns, where)
        for name in self.together:
            columns.require(name, f"{where}: together")
            check_key_type(f"{where}: together", name, columns[name])

    @property
    def _promise(self) -> str:
        return f"; together by {', '.join(self.together)}" if self.together else ""


@dataclass(frozen=True)
class Rows(Assignment):
    """Every step adds the next k rows by number."""

    k: int

    def __str__(self) -> str:
        return f"rows({self.k})"


@dataclass(frozen=True)
class Fractions(Assignment):
    """Every step adds an n-th of each split: row j of split s of S, of L rows, comes at step (j + s/S)·n // L."""

    n: int

    @property
    def least_steps(self) -> int:
        return self.n

    def __str__(self) -> str:
        return f"fractions({self.n})"


@dataclass(frozen=True)
class Exponential(Assignment):
    """Steps add first, first·ratio, first·ratio², … rows by number."""

    first: int
    ratio: float

    def __str__(self) -> str:
        return f"exponential({self.first}, {self.ratio:g})"


@dataclass(frozen=True)
class Hashed(Promising):
    """The step is decided by the stable hash of the columns: equal values come together, in every input."""

    names: tuple[str, ...]
    steps: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def least_steps(self) -> int:
        return self.steps

    def check(self, columns: Schema, where: str) -> None:
        super().check(columns, where)
        self._check_keys(columns, where)

    def __str__(self) -> str:
        return f"hashed({', '.join(self.names)}; {self.steps} steps{self._promise})"


@dataclass(frozen=True)
class Stratified(Assignment):
    """Every step adds the next k rows of each key, by number."""

    key: tuple[str, ...]
    k: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.key

    def check(self, columns: Schema, where: str) -> None:
        super().check(columns, where)
        self._check_keys(columns, where)

    def __str__(self) -> str:
        return f"stratified({', '.join(self.key)}; {self.k})"


@dataclass(frozen=True)
class AtStart(Assignment):
    """All rows are there from point 0 on, as those of a dimension table should be."""

    def __str__(self) -> str:
        return "at_start()"


@dataclass(frozen=True)
class Columns(Promising):
    """The rows say it themselves: their first point and, where there is a column for it, their end (null: none)."""

    leaves_gaps: ClassVar[bool] = True

    start: str
    end: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.start,) if self.end is None else (self.start, self.end)

    @property
    def has_ends(self) -> bool:
        return self.end is not None

    def check(self, columns: Schema, where: str) -> None:
        super().check(columns, where)
        for name in self.columns:
            dtype = columns[name]
            is_number = dtype.is_integer() and dtype not in (pl.Int128(), pl.UInt128())
            if not is_number and not (name == self.end and isinstance(dtype, pl.Null)):
                raise PlanError(
                    f"{where}: column {name!r} is {dtype}",
                    "progress points are whole numbers from 0 on: give an integer column.",
                )

    def __str__(self) -> str:
        return f"columns({', '.join(self.columns)}{self._promise})"


KINDS: dict[str, type[Assignment]] = {
    kind.__name__: kind for kind in (AtStart, Columns, Exponential, Fractions, Hashed, Rows, Stratified)
}


def assignment_from(values: Mapping[str, Any]) -> Assignment:
    """Return the assignment that `to_values` was asked of.

    >>> str(assignment_from({"kind": "Hashed", "names": ["user"], "steps": 4}))
    'hashed(user; 4 steps)'
    """
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return KINDS[str(given.pop("kind"))](**given)
