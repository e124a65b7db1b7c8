"""Confidence intervals for early answers: `sq.ci`, for `aggregate` and `group_aggregate`.

A column of these is a struct of ``estimate``, ``low`` and ``high``, all Float64. In early answers whose rows come in
the order of a hash (`sq.progress.hashed`) the estimate is that of the answer over all rows, and with probability
`level` the answer over all rows lies between low and high; a bound that is not known yet is null. Over all rows, in
the final answer and in `collect()`, all three are the exact value.

Rows of equal hashed columns come together, so these are what is sampled, each with the same chance and by itself;
rows of one of them may be as alike as they are. Intervals rest on the central limit theorem over the hashed values:
it wants some tens of these, many more where a few of them have most of the sum, and of `ratio` a sum below the line
that is well away from 0.

With `uniform` the interval holds at all steps at once with probability `level`, so one may look at every answer and
stop when it is good enough. Without, it holds at each step with that probability, and is narrower.

Examples
--------
>>> import squill as sq
>>> visits = sq.from_frame({"user": range(1000), "paid": [n % 4 == 0 for n in range(1000)]})
>>> rate = visits.aggregate(rate=sq.ci.mean("paid"))
>>> for early in rate.progressive(sq.progress.hashed("user", steps=4)):
...     print({name: round(value, 3) for name, value in early.frame.item().items()})
{'estimate': 0.293, 'low': 0.241, 'high': 0.344}
{'estimate': 0.279, 'low': 0.25, 'high': 0.307}
{'estimate': 0.255, 'low': 0.239, 'high': 0.271}
{'estimate': 0.25, 'low': 0.25, 'high': 0.25}
"""

from __future__ import annotations

import polars as pl

from squill.errors import PlanError
from squill.plan import functions
from squill.plan.aggregates import AggregateExpr
from squill.plan.confidence import ConfidenceExpr
from squill.plan.expressions import IntoExpression
from squill.wording import shortened

__all__ = ["count", "mean", "quantile", "ratio", "sum"]


HIGHEST_LEVEL = 1 - 1e-12
"""Beyond it a double cannot tell the quantile that belongs to it."""


def mean(
    x: IntoExpression, *, level: float = 0.95, uniform: bool = False, where: IntoExpression | None = None
) -> AggregateExpr:
    """Return the mean of `x` with its interval; null when no value is left."""
    parts = functions.sum(x, where=where), functions.count_not_null(x, where=where)
    return _quotient("mean", parts, level, uniform)


def ratio(
    x: IntoExpression,
    y: IntoExpression,
    *,
    level: float = 0.95,
    uniform: bool = False,
    where: IntoExpression | None = None,
) -> AggregateExpr:
    """Return the sum of `x` divided by the sum of `y` with its interval; null where the latter is 0."""
    return _quotient("ratio", (functions.sum(x, where=where), functions.sum(y, where=where)), level, uniform)


def sum(
    x: IntoExpression, *, level: float = 0.95, uniform: bool = False, where: IntoExpression | None = None
) -> AggregateExpr:
    """Return the sum of `x` over all rows, those to come included, with its interval."""
    return _total("sum", functions.sum(x, where=where), level, uniform)


def count(*, level: float = 0.95, uniform: bool = False, where: IntoExpression | None = None) -> AggregateExpr:
    """Return how many rows there are in all, those to come included, with its interval."""
    return _total("count", functions.count(where=where), level, uniform)


def quantile(
    x: IntoExpression,
    p: float = 0.5,
    *,
    level: float = 0.95,
    uniform: bool = False,
    where: IntoExpression | None = None,
) -> AggregateExpr:
    """Return the p-th percentile of `x`, 0 < p < 1, with an interval between two of its values.

    The interval allows for rows of equal hashed columns that are all alike, so it is wider than need be where they
    are not. It supposes that how many rows a hashed value has says nothing about their `x`.
    """
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 < p < 1:
        raise PlanError(f"sq.ci.quantile: p is {shortened(p)}; it must lie between 0 and 1", "0.5 is the median.")
    parts = functions.percentile(x, p, where=where), functions.count_not_null(x, where=where)
    return _interval("quantile", parts, parts[0].expr.cast(pl.Float64), level, uniform, float(p))


def _total(kind: str, total: AggregateExpr, level: object, uniform: object) -> AggregateExpr:
    return _interval(kind, (total,), total.expr.cast(pl.Float64), level, uniform)


def _quotient(kind: str, parts: tuple[AggregateExpr, AggregateExpr], level: object, uniform: object) -> AggregateExpr:
    x, y = (part.expr.cast(pl.Float64) for part in parts)
    return _interval(kind, parts, pl.when(y != 0).then(x / y), level, uniform)


def _interval(
    kind: str, parts: tuple[AggregateExpr, ...], estimate: pl.Expr, level: object, uniform: object, p: float = 0.5
) -> AggregateExpr:
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level <= HIGHEST_LEVEL:
        raise PlanError(
            f"sq.ci.{kind}: level is {shortened(level)}; it must lie between 0 and 1, at most 1 - 1e-12",
            "0.95 is usual.",
        )
    if not isinstance(uniform, bool):
        raise PlanError(f"sq.ci.{kind}: uniform is {shortened(uniform)}, not True or False", "write uniform=True.")
    return ConfidenceExpr(kind, parts, estimate, level=float(level), uniform=uniform, p=p)
