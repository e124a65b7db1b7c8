"""Snapshot aggregates: at every change point, each aggregate of the rows alive there, from its definition."""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from squill.errors import NumericOverflowError, UserFunctionError
from squill.plan.aggregates import BoundAggregate
from squill.plan.nodes import Aggregate
from squill.plan.schema import Schema
from squill.testing.reference.rows import (
    Row,
    evaluate,
    group_rows,
    identity,
    order_key,
    row_order,
    typed_frame,
)

__all__ = ["AGGREGATES", "aggregate"]


@dataclass(frozen=True)
class Member:
    """A row as one aggregate sees it: the values of its inputs, and its place in the order of the rule."""

    row: Row
    values: tuple[Any, ...]
    order: tuple[Any, ...]

    @property
    def value(self) -> Any:
        return self.values[0]


@dataclass(frozen=True)
class Snapshot:
    """What one aggregate has before it at one change point: the rows alive that pass its filter, in order."""

    call: BoundAggregate
    members: Sequence[Member]
    payload: Schema

    @property
    def values(self) -> list[Any]:
        """The values of the first input, nulls skipped."""
        return [member.value for member in self.members if member.value is not None]

    @property
    def dtype(self) -> pl.DataType:
        """The type of the first input."""
        return self.call.inputs[0].dtype

    def order(self, value: Any) -> tuple[Any, ...]:
        return order_key(value, self.dtype)


def aggregate(node: Aggregate, rows: list[Row]) -> list[Row]:
    answers = []
    for group in group_rows(rows, node.keys):
        keys = {name: group[0].payload[name] for name in node.keys}
        members = [_members(call, group, node) for call in node.calls]
        points = sorted({t for row in group for t in (row.start, row.end)})
        for start, end in itertools.pairwise(points):
            if any(row.alive(start) for row in group):
                values = [
                    AGGREGATES[call.kind](_snapshot(call, seen, start, node))
                    for call, seen in zip(node.calls, members, strict=True)
                ]
                answers.append(Row(start, end, {**keys, **_outputs(node, values)}))
    return answers


def _members(call: BoundAggregate, rows: Sequence[Row], node: Aggregate) -> list[Member]:
    """Return the rows that pass the aggregate's own filter, in order."""
    seen = []
    for row in rows:
        if call.where is None or evaluate([call.where], row, node.parent) == (True,):
            values = evaluate(call.inputs, row, node.parent) if call.inputs else ()
            seen.append(Member(row, values, row_order(row, node.parent, call.order_by)))
    return sorted(seen, key=lambda member: member.order)


def _snapshot(call: BoundAggregate, members: Sequence[Member], t: int, node: Aggregate) -> Snapshot:
    return Snapshot(call, [member for member in members if member.row.alive(t)], node.parent.schema)


def _outputs(node: Aggregate, values: Sequence[Any]) -> dict[str, Any]:
    schema = Schema((call.placeholder, call.dtype) for call in node.calls)
    frame = typed_frame([dict(zip(schema, values, strict=True))], schema)
    return {item.name: frame.select(item.expr).to_series().to_list()[0] for item in node.columns}


def count(alive: Snapshot) -> int:
    return len(alive.members)


def count_not_null(alive: Snapshot) -> int:
    return len(alive.values)


def count_distinct(alive: Snapshot) -> int:
    return len({identity(value) for value in alive.values})


def first(alive: Snapshot) -> Any:
    return next(iter(alive.values), None)


def last(alive: Snapshot) -> Any:
    return next(iter(reversed(alive.values)), None)


def collect_list(alive: Snapshot) -> list[Any]:
    return [member.value for member in alive.members]


def smallest(alive: Snapshot) -> Any:
    return min(alive.values, key=alive.order, default=None)


def largest(alive: Snapshot) -> Any:
    return max(alive.values, key=alive.order, default=None)


# -- numbers ------------------------------------------------------------------------------------------------


def total(alive: Snapshot) -> Any:
    values, dtype = alive.values, alive.call.dtype
    if dtype.is_float():
        return _float_total(values)
    if isinstance(dtype, pl.Duration):
        series = pl.Series(values, dtype=dtype).to_physical().to_list()
        return pl.Series([_int64(sum(series), alive.call)], dtype=pl.Int64()).cast(dtype)[0]
    if isinstance(dtype, pl.Decimal):
        return _decimal(sum((Fraction(value) for value in values), Fraction()), dtype, alive.call)
    return _int64(sum(int(value) for value in values), alive.call)


def _int64(value: int, call: BoundAggregate) -> int:
    if not -(2**63) <= value < 2**63:
        raise NumericOverflowError(
            f"aggregate {call}: the value {value} does not fit Int64",
            "cast the column to Float64 or Decimal first.",
        )
    return value


def _decimal(value: Fraction, dtype: pl.Decimal, call: BoundAggregate) -> decimal.Decimal:
    unscaled = value * 10**dtype.scale
    assert unscaled.denominator == 1
    if abs(unscaled.numerator) >= 10**38:
        raise NumericOverflowError(f"aggregate {call}: the value {value} does not fit {dtype}", "use Float64.")
    with decimal.localcontext() as context:
        context.prec = 80
        return decimal.Decimal(unscaled.numerator).scaleb(-dtype.scale)


def _exact(value: Any) -> Fraction:
    return Fraction(value)


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value.numerator)


def _float_total(values: Sequence[Any]) -> float:
    special = [value for value in values if not _finite(value)]
    if special:
        return math.fsum(special) if len({*map(identity, special)}) == 1 else math.nan
    return _as_float(sum(map(_exact, values), Fraction()))


def mean(alive: Snapshot) -> float | None:
    values = alive.values
    if not values:
        return None
    if not all(map(_finite, values)):
        return _float_total(values)
    return _as_float(sum(map(_exact, values), Fraction()) / len(values))


def variance(alive: Snapshot) -> float | None:
    values, ddof = alive.values, alive.call.option("ddof")
    if len(values) <= ddof:
        return None
    if not all(map(_finite, values)):
        return math.nan
    exact = [_exact(value) for value in values]
    middle = sum(exact, Fraction()) / len(exact)
    return _as_float(sum(((value - middle) ** 2 for value in exact), Fraction()) / (len(exact) - ddof))


def deviation(alive: Snapshot) -> float | None:
    value = variance(alive)
    return None if value is None else math.sqrt(value)


def product(alive: Snapshot) -> Any:
    values = alive.values
    if not values:
        return None
    if not alive.call.dtype.is_float():
        return _int64(math.prod(int(value) for value in values), alive.call)
    special = [value for value in values if not _finite(value)]
    if special:
        # Only the signs of the finite ones matter beside an infinity, and whether one is zero.
        return math.prod(special) * math.prod(math.copysign(1.0, v) if v else v for v in values if _finite(v))
    return _as_float(functools.reduce(lambda a, b: a * b, map(_exact, values)))


def percentile(alive: Snapshot) -> Any:
    p = alive.call.option("p")
    values = sorted(alive.values, key=alive.order)
    if not values:
        return None
    if alive.call.option("discrete"):
        return values[max(math.ceil(p * len(values)) - 1, 0)]
    rank = p * (len(values) - 1)
    low, high = values[math.floor(rank)], values[math.ceil(rank)]
    if rank == math.floor(rank):
        return float(low)
    if not (_finite(low) and _finite(high)):
        return float(low) + (float(high) - float(low)) * (rank % 1)
    return _as_float(_exact(low) + (_exact(high) - _exact(low)) * Fraction(rank % 1))


# -- rows and user's functions ------------------------------------------------------------------------------


def top_k(alive: Snapshot) -> list[dict[str, Any]]:
    payload, k = alive.payload, alive.call.option("k")
    present = [(alive.order(member.value), member) for member in alive.members if member.value is not None]
    ranked = []
    for key, member in present:
        before = sum(other > key if alive.call.option("descending") else other < key for other, _ in present)
        if before < k:
            ties = tuple(order_key(member.row.payload[name], payload[name]) for name in payload)
            ranked.append((before + 1, ties, member.row.payload))
    return [{"rank": rank, **row} for rank, _, row in sorted(ranked, key=lambda item: item[:2])]


def user(alive: Snapshot) -> Any:
    functions = alive.call.user
    assert functions is not None
    try:
        state = functions.init()
        for member in alive.members:
            if None not in member.values:
                state = functions.accumulate(state, member.row.start, *member.values)
        return functions.result(state)
    except Exception as error:
        raise UserFunctionError(f"aggregate_fn: a function failed: {error}") from error


AGGREGATES: dict[str, Callable[[Snapshot], Any]] = {
    "collect_list": collect_list,
    "count": count,
    "count_distinct": count_distinct,
    "count_not_null": count_not_null,
    "first": first,
    "last": last,
    "max": largest,
    "mean": mean,
    "min": smallest,
    "percentile": percentile,
    "product": product,
    "std": deviation,
    "sum": total,
    "top_k": top_k,
    "user": user,
    "var": variance,
}
