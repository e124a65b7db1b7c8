"""Rows, their equality, their order, and one-row evaluation of expressions.

Everything here is written for being read. Expressions run on frames of one row, so that nothing can look
beyond it; values are plain Python, so Datetime payloads finer than a microsecond lose their last digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from squill.errors import TimeOverflowError
from squill.plan.expressions import END, START, Expression
from squill.plan.node import Node
from squill.plan.schema import Schema
from squill.time import INFINITY, MINUS_INFINITY, TimeType

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = [
    "NAN", "Row", "checked", "evaluate", "evaluated", "group_rows", "identity", "moved", "order_key",
    "payload_identity", "row_order", "ticks_of", "time_series", "typed_frame",
]  # fmt: skip

NAN = "not a number"
"""Stands for every NaN in `identity`: they are one value."""


@dataclass(frozen=True)
class Row:
    """An event with its edges folded: alive in [start, end), times in ticks, `INFINITY` for no end.

    Examples
    --------
    >>> Row(1, 5, {"x": 7})
    Row(1, 5, x=7)
    >>> Row(1, INFINITY, {}).endless
    True
    """

    start: int
    end: int
    payload: dict[str, Any]

    @property
    def endless(self) -> bool:
        return self.end == INFINITY

    def alive(self, t: int) -> bool:
        return self.start <= t < self.end

    def living(self, start: int, end: int) -> Row:
        """Return the same payload with another lifetime."""
        return replace(self, start=start, end=end)

    def __repr__(self) -> str:
        names = {INFINITY: "INFINITY", MINUS_INFINITY: "MINUS_INFINITY"}
        times = [names.get(t, str(t)) for t in (self.start, self.end)]
        return f"Row({', '.join(times + [f'{name}={value!r}' for name, value in self.payload.items()])})"


def checked(ticks: int, what: str) -> int:
    """Return a finite time, or raise when it leaves the range of finite times."""
    if not MINUS_INFINITY < ticks < INFINITY:
        raise TimeOverflowError(f"{what}: the time {ticks} leaves the 64-bit range", "use shorter durations.")
    return ticks


def moved(t: int, by: int, what: str) -> int:
    """Return t + by; infinities stay where they are."""
    return t if t in (INFINITY, MINUS_INFINITY) else checked(t + by, what)


def lasting(start: int, length: int, what: str) -> int:
    """Return the end of a lifetime of `length`; from minus infinity no length leads anywhere."""
    return checked(start, what) + length if start == MINUS_INFINITY else moved(start, length, what)


def identity(value: Any) -> Any:
    """Return something hashable that is the same for equal values: all NaNs are equal, and 0.0 is −0.0.

    Python takes the two times that a clock shows 2:30 in the night when summer time ends for one: UTC tells them apart.
    """
    if isinstance(value, float) and math.isnan(value):
        return NAN
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, (list, tuple, pl.Series)):
        return tuple(identity(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, identity(item)) for name, item in value.items())
    return value


def payload_identity(row: Row, names: Iterable[str] | None = None) -> tuple[Any, ...]:
    return tuple(identity(row.payload[name]) for name in (row.payload if names is None else names))


def group_rows(rows: Iterable[Row], names: Iterable[str] | None = None) -> list[list[Row]]:
    """Return the rows apart by these columns (all, when None), in order of first appearance."""
    chosen = None if names is None else tuple(names)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(payload_identity(row, chosen), []).append(row)
    return list(groups.values())


def order_key(value: Any, dtype: pl.DataType) -> tuple[Any, ...]:
    """Return a sort key for one value: nulls first, NaN last, lists, structs and maps item by item."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(dtype, (pl.List, pl.Array)):
        return (1, tuple(order_key(item, _instance(dtype.inner)) for item in value))
    if isinstance(dtype, pl.Struct):
        return (1, tuple(order_key(value[field.name], _instance(field.dtype)) for field in dtype.fields))
    if isinstance(dtype, pl.Map):
        kinds = (_instance(dtype.key), _instance(dtype.value))
        return (1, tuple(tuple(map(order_key, entry, kinds)) for entry in value.items()))
    if isinstance(dtype, pl.Enum):
        return (1, dtype.categories.to_list().index(value))
    return (1, identity(value))


def _instance(dtype: PolarsDataType) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def row_order(row: Row, node: Node, order_by: Sequence[Expression] = ()) -> tuple[Any, ...]:
    """Return the sort key of the order rule: start, then `order_by`, then the payload in schema order."""
    given = evaluate(order_by, row, node) if order_by else ()
    first = tuple(order_key(value, item.dtype) for value, item in zip(given, order_by, strict=True))
    payload = tuple(order_key(row.payload[name], dtype) for name, dtype in node.schema.items())
    return (row.start, first, payload)


def time_series(name: str, ticks: Iterable[int], time: TimeType) -> pl.Series:
    """Return times in the stream's own type; infinities become null."""
    finite = [None if t in (INFINITY, MINUS_INFINITY) else t for t in ticks]
    try:
        return pl.Series(name, finite, dtype=pl.Int64()).cast(time.dtype)
    except pl.exceptions.InvalidOperationError as error:
        raise TimeOverflowError(f"a time does not fit {time}: {error}", "use a wider time type.") from error


def ticks_of(series: pl.Series) -> list[int | None]:
    """Return a time column in ticks, null kept."""
    return series.to_physical().cast(pl.Int64()).to_list()


def typed_frame(payloads: Sequence[dict[str, Any]], schema: Schema) -> pl.DataFrame:
    """Return payloads as a frame of exactly this schema, which may have no columns."""
    if not schema:
        return pl.DataFrame(height=len(payloads))
    return pl.DataFrame(
        [pl.Series(name, [row[name] for row in payloads], dtype=dtype) for name, dtype in schema.items()]
    )


def evaluate(expressions: Sequence[Expression], row: Row, node: Node) -> tuple[Any, ...]:
    """Return the values of expressions over `node`'s output for one of its rows."""
    return tuple(values.to_list()[0] for values in evaluated(expressions, row, node))


def evaluated(expressions: Sequence[Expression], row: Row, node: Node) -> list[pl.Series]:
    """Return the same as columns of one value, in which times keep their nanoseconds: Python has no word for them."""
    columns = typed_frame([row.payload], node.schema).get_columns()
    if node.time is not None:
        columns += [time_series(START, [row.start], node.time), time_series(END, [row.end], node.time)]
    frame = pl.DataFrame(columns)
    return [frame.select(item.expr).to_series() for item in expressions]
