"""The aggregate functions that users call: `sq.count()`, `sq.sum("x")`, … and `sq.aggregate_fn`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from squill.errors import PlanError
from squill.plan.aggregates import AggregateCall, AggregateExpr, UserAggregate
from squill.plan.expressions import IntoExpression
from squill.plan.schema import require_type
from squill.time import INFINITY
from squill.wording import shortened

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = [
    "aggregate_fn", "collect_list", "count", "count_distinct", "count_not_null", "first", "last", "max", "mean",
    "min", "percentile", "product", "std", "sum", "top_k", "var",
]  # fmt: skip

OrderBy = IntoExpression | Sequence[IntoExpression] | None
MAX_DDOF = 255
"""What Polars takes, so that relational and temporal aggregates take the same."""


def _call(
    kind: str,
    *inputs: IntoExpression,
    where: IntoExpression | None = None,
    order_by: OrderBy = None,
    **options: object,
) -> AggregateExpr:
    order = _several(order_by)
    _check_expressions(kind, "", inputs)
    _check_expressions(kind, "where=", () if where is None else (where,))
    _check_expressions(kind, "order_by=", order)
    return AggregateExpr.of(AggregateCall(kind, inputs, where, order, tuple(options.items())))


def _several(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _check_expressions(kind: str, argument: str, given: Sequence[object]) -> None:
    for item in given:
        if not isinstance(item, (str, pl.Expr)):
            what = f"sq.{kind}: {argument}{shortened(item)} is neither a column name nor an expression"
            raise PlanError(what, f"write {argument}sq.col('x')." if argument else "write sq.sum('x').")


def _flag(kind: str, name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise PlanError(f"sq.{kind}: {name} is {shortened(given)}, not True or False", f"write {name}=True.")
    return given


def _degrees(kind: str, ddof: object) -> int:
    if isinstance(ddof, bool) or not isinstance(ddof, int) or not 0 <= ddof <= MAX_DDOF:
        raise PlanError(
            f"sq.{kind}: ddof is {shortened(ddof)}; it must be a whole number of at least 0", "1 for a sample."
        )
    return ddof


def count(*, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the number of events alive (Int64); nulls count."""
    return _call("count", where=where)


def count_not_null(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the number of events alive whose `x` is not null (Int64)."""
    return _call("count_not_null", x, where=where)


def sum(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the sum of `x`: Int64 for integers (checked), Float64 for floats; nulls are skipped, none left is 0."""
    return _call("sum", x, where=where)


def mean(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the mean of `x` (Float64); null when no value is left."""
    return _call("mean", x, where=where)


def min(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the smallest `x` in its own type; null when no value is left."""
    return _call("min", x, where=where)


def max(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the largest `x` in its own type; null when no value is left."""
    return _call("max", x, where=where)


def product(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the product of `x`: exact Int64 for integers (checked), Float64 for floats; none left is null."""
    return _call("product", x, where=where)


def var(x: IntoExpression, ddof: int = 1, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the variance of `x` with `ddof` delta degrees of freedom; null below ddof + 1 values."""
    return _call("var", x, where=where, ddof=_degrees("var", ddof))


def std(x: IntoExpression, ddof: int = 1, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the standard deviation of `x`; null below ddof + 1 values."""
    return _call("std", x, where=where, ddof=_degrees("std", ddof))


def first(x: IntoExpression, *, order_by: OrderBy = None, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the first non-null `x` by start, then `order_by`, then the payload."""
    return _call("first", x, where=where, order_by=order_by)


def last(x: IntoExpression, *, order_by: OrderBy = None, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the last non-null `x` by start, then `order_by`, then the payload."""
    return _call("last", x, where=where, order_by=order_by)


def collect_list(x: IntoExpression, *, order_by: OrderBy = None, where: IntoExpression | None = None) -> AggregateExpr:
    """Return all values of `x` as a list, nulls kept, by start, then `order_by`, then the payload."""
    return _call("collect_list", x, where=where, order_by=order_by)


def count_distinct(x: IntoExpression, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return how many different non-null values `x` has (Int64)."""
    return _call("count_distinct", x, where=where)


def top_k(by: IntoExpression, k: int, descending: bool = True, *, where: IntoExpression | None = None) -> AggregateExpr:
    """Return the `k` first rows by `by` as a list of structs (rank, payload); ties of the k-th place are kept."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k < INFINITY:
        raise PlanError(
            f"sq.top_k: k is {shortened(k)}; it must be a whole number of at least 1 and below 2^63",
            "sq.top_k('x', 10)",
        )
    return _call("top_k", by, where=where, k=k, descending=_flag("top_k", "descending", descending))


def percentile(
    x: IntoExpression, p: float, discrete: bool = False, *, where: IntoExpression | None = None
) -> AggregateExpr:
    """Return the p-th percentile of `x`, 0 ≤ p ≤ 1: interpolated, or with `discrete` a value that is there."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise PlanError(f"sq.percentile: p is {shortened(p)}; it must lie between 0 and 1", "0.5 is the median.")
    return _call("percentile", x, where=where, p=float(p), discrete=_flag("percentile", "discrete", discrete))


def aggregate_fn(
    inputs: IntoExpression | Sequence[IntoExpression],
    *,
    init: Callable[[], Any],
    accumulate: Callable[..., Any],
    deaccumulate: Callable[..., Any] | None = None,
    merge: Callable[..., Any] | None = None,
    result: Callable[..., Any],
    dtype: PolarsDataType,
) -> AggregateExpr:
    """Return an aggregate of your own, compiled into the same loops as the built-in ones.

    The state is a tuple of numbers whose types `init()` fixes. `accumulate(state, t, *x)` returns the state
    with one event added, `deaccumulate(state, t, *x)` with it taken away; without the latter the live events
    are folded again at each change (and a warning says so). `result(state)` gives the value, None for null;
    it is asked whenever an event is alive. Events with a null input are not passed. `t` is the event's start
    in ticks. Functions that Numba cannot compile run as plain Python, with a warning.

    `merge(state, other)` returns the state of the events behind both, in whatever order they came. With it the
    shards of a cluster can aggregate their own events first, and send states in place of events
    (`collect(on=cluster)`).

    Examples
    --------
    >>> import polars as pl
    >>> import squill as sq
    >>> mean = sq.aggregate_fn(
    ...     "x",
    ...     init=lambda: (0, 0.0),
    ...     accumulate=lambda state, t, x: (state[0] + 1, state[1] + x),
    ...     deaccumulate=lambda state, t, x: (state[0] - 1, state[1] - x),
    ...     result=lambda state: state[1] / state[0] if state[0] > 0 else None,
    ...     dtype=pl.Float64,
    ... )
    >>> events = sq.from_frame(pl.DataFrame({"t": [1, 2], "x": [1.0, 4.0]}), start="t")
    >>> events.with_duration(5).aggregate(m=mean).collect()["m"].to_list()
    [1.0, 2.5, 4.0]
    """
    columns = _several(inputs)
    _check_expressions("aggregate_fn", "", columns)
    functions = {"init": init, "accumulate": accumulate, "result": result}
    optional = {"deaccumulate": deaccumulate, "merge": merge}
    for name, function in {**functions, **{k: v for k, v in optional.items() if v is not None}}.items():
        if not callable(function):
            raise PlanError(f"sq.aggregate_fn: {name} is {shortened(function)}, not a function", f"{name}=lambda …: …")
    if deaccumulate is None:
        warnings.warn(
            "sq.aggregate_fn without deaccumulate folds all live events again at each change; "
            "deaccumulate(state, t, *x) takes one event away instead",
            UserWarning,
            stacklevel=2,
        )
    dtype = require_type(dtype, "sq.aggregate_fn: dtype")
    user = UserAggregate(columns, init, accumulate, deaccumulate, merge, result, dtype)
    return AggregateExpr.of(AggregateCall("user", columns, user=user))
