"""Confidence intervals as plan data: what the user writes, and what an aggregate remembers of it.

Over all rows nothing is uncertain: the column is the exact value, as often as a struct has fields. What the interval
is over a sample is decided where a progressive query knows how its rows are sampled (`build/confidence.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import polars as pl

from squill.errors import PlanError
from squill.plan.aggregates import AggregateExpr

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["FIELDS", "ConfidenceExpr", "Estimated", "is_interval_type"]

FIELDS = ("estimate", "low", "high")


def is_interval_type(dtype: pl.DataType) -> bool:
    """Whether values of this type are estimates with their intervals."""
    return isinstance(dtype, pl.Struct) and tuple(field.name for field in dtype.fields) == FIELDS


@dataclass(frozen=True)
class Estimated:
    """An aggregate's column that has an interval.

    ``kind``  ``count`` and ``sum`` are totals, ``mean`` and ``ratio`` quotients of totals, ``quantile`` is a rank.
    ``of``    the placeholders of the aggregates behind it: the total; numerator and denominator; the quantile and how
              many values there are.
    """

    column: str
    kind: str
    level: float
    uniform: bool
    of: tuple[str, ...]
    p: float = 0.5


class ConfidenceExpr(AggregateExpr):
    """What `sq.ci.…` returns: an aggregate whose value is a struct of estimate, low and high."""

    __slots__ = ("behind", "kind", "level", "p", "uniform")

    def __init__(
        self, kind: str, of: tuple[AggregateExpr, ...], estimate: pl.Expr, *, level: float, uniform: bool, p: float
    ) -> None:
        calls = {name: call for item in of for name, call in item.calls.items()}
        arguments = ", ".join(map(str, of)) + ("" if kind != "quantile" else f", p={p:g}")
        shown = f"ci.{kind}({arguments}, level={level:g}{', uniform=True' if uniform else ''})"
        super().__init__(pl.struct(estimate.alias(name) for name in FIELDS), calls, shown)
        self.kind = kind
        self.behind = tuple(name for item in of for name in item.calls)
        self.level = level
        self.uniform = uniform
        self.p = p

    def named(self, column: str) -> Estimated:
        return Estimated(column, self.kind, self.level, self.uniform, self.behind, self.p)

    def _refused(self) -> NoReturn:
        raise PlanError(
            f"{self}: there is no arithmetic over intervals",
            "give it a column of its own, and work with its fields afterwards: sq.col('m').struct.field('low'). "
            "sq.ci.ratio divides one sum by another.",
        )

    def _combine(self, other: object, symbol: str, join: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> AggregateExpr:
        self._refused()

    def __neg__(self) -> AggregateExpr:
        self._refused()

    def cast(self, dtype: PolarsDataType) -> AggregateExpr:
        """Refuse: an interval has no other type."""
        self._refused()

    def pipe(self, function: Callable[[pl.Expr], pl.Expr]) -> AggregateExpr:
        """Refuse: what is computed from an interval is a column of its own."""
        self._refused()
