"""Aggregates as plan data: what the user writes, and what it becomes once the columns are known.

`sq.sum("x") / sq.count()` is a Polars expression over placeholder columns, one per distinct aggregate
call, so that arithmetic over aggregates needs no code of its own and equal calls are computed once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from squill.errors import PlanError
from squill.plan.expressions import Expression, IntoExpression, Scope, bind_one, bind_predicate
from squill.plan.schema import Schema
from squill.wording import articled, shortened

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["AggregateCall", "AggregateExpr", "BoundAggregate", "UserAggregate"]

NUMBERS = "a number, a Boolean or a Duration"
CONSTANTS = (bool, int, float, str, bytes, Decimal, dt.date, dt.time, dt.timedelta)
SHOWN = {"user": "aggregate_fn", "user_states": "aggregate_fn.states", "user_merge": "aggregate_fn.merge"}
SUPPORTED_ORDER = "an ordered type: number, text, time, Boolean, Decimal"


@dataclass(frozen=True)
class UserAggregate:
    """The functions of `sq.aggregate_fn`; state is a tuple of numbers."""

    inputs: tuple[IntoExpression, ...] = field(compare=False)
    init: Callable[[], Any]
    accumulate: Callable[..., Any]
    deaccumulate: Callable[..., Any] | None
    merge: Callable[..., Any] | None
    result: Callable[..., Any]
    dtype: pl.DataType


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate as the user wrote it, its columns not yet looked up."""

    kind: str
    inputs: tuple[IntoExpression, ...] = ()
    where: IntoExpression | None = None
    order_by: tuple[IntoExpression, ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    user: UserAggregate | None = None

    @property
    def placeholder(self) -> str:
        """A column name that equal calls share."""
        parts = [self.kind, repr(self.options), str(id(self.user)) if self.user else ""]
        parts += [text_of(item) for item in (*self.inputs, self.where, *self.order_by)]
        digest = hashlib.blake2b("\x00".join(parts).encode(), digest_size=8).hexdigest()
        return f"__aggregate_{digest}__"


def text_of(given: IntoExpression | None) -> str:
    if given is None or isinstance(given, str):
        return repr(given)
    return given.meta.serialize(format="json")


class AggregateExpr:
    """An aggregate, or arithmetic over several; what `aggregate(name=…)` takes.

    Examples
    --------
    >>> import squill as sq
    >>> sq.sum("x") / sq.count()
    sum('x') / count()
    """

    __slots__ = ("_text", "calls", "expr")

    def __init__(self, expr: pl.Expr, calls: dict[str, AggregateCall], text: str) -> None:
        self.expr = expr
        self.calls = calls
        self._text = text

    @classmethod
    def of(cls, call: AggregateCall) -> AggregateExpr:
        shown = [*(item if not isinstance(item, str) else repr(item) for item in call.inputs)]
        text = f"{SHOWN.get(call.kind, call.kind)}({', '.join(map(str, shown))})"
        return cls(pl.col(call.placeholder), {call.placeholder: call}, text)

    def __repr__(self) -> str:
        return self._text

    def _combine(self, other: object, symbol: str, join: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> AggregateExpr:
        left, right = self.expr, _operand(other)
        calls = {**self.calls, **(other.calls if isinstance(other, AggregateExpr) else {})}
        return AggregateExpr(join(left, right), calls, f"{self} {symbol} {other}")

    def __add__(self, other: object) -> AggregateExpr:
        return self._combine(other, "+", lambda a, b: a + b)

    def __radd__(self, other: object) -> AggregateExpr:
        return self._combine(other, "+", lambda a, b: b + a)

    def __sub__(self, other: object) -> AggregateExpr:
        return self._combine(other, "-", lambda a, b: a - b)

    def __rsub__(self, other: object) -> AggregateExpr:
        return self._combine(other, "subtracted from", lambda a, b: b - a)

    def __mul__(self, other: object) -> AggregateExpr:
        return self._combine(other, "*", lambda a, b: a * b)

    def __rmul__(self, other: object) -> AggregateExpr:
        return self._combine(other, "*", lambda a, b: b * a)

    def __truediv__(self, other: object) -> AggregateExpr:
        return self._combine(other, "/", lambda a, b: a / b)

    def __rtruediv__(self, other: object) -> AggregateExpr:
        return self._combine(other, "divides", lambda a, b: b / a)

    def __floordiv__(self, other: object) -> AggregateExpr:
        return self._combine(other, "//", lambda a, b: a // b)

    def __mod__(self, other: object) -> AggregateExpr:
        return self._combine(other, "%", lambda a, b: a % b)

    def __pow__(self, other: object) -> AggregateExpr:
        return self._combine(other, "**", lambda a, b: a**b)

    def __gt__(self, other: object) -> AggregateExpr:
        return self._combine(other, ">", lambda a, b: a > b)

    def __ge__(self, other: object) -> AggregateExpr:
        return self._combine(other, ">=", lambda a, b: a >= b)

    def __lt__(self, other: object) -> AggregateExpr:
        return self._combine(other, "<", lambda a, b: a < b)

    def __le__(self, other: object) -> AggregateExpr:
        return self._combine(other, "<=", lambda a, b: a <= b)

    def __neg__(self) -> AggregateExpr:
        return AggregateExpr(-self.expr, self.calls, f"-{self}")

    def cast(self, dtype: PolarsDataType) -> AggregateExpr:
        """Return the value converted to another type."""
        return AggregateExpr(self.expr.cast(dtype), self.calls, f"{self}.cast({dtype})")

    def pipe(self, function: Callable[[pl.Expr], pl.Expr]) -> AggregateExpr:
        """Return `function` of the value, any row-wise Polars expression."""
        result = function(self.expr) if callable(function) else function
        if not isinstance(result, pl.Expr):
            raise PlanError(f"{self}.pipe: {shortened(result)} is not an expression", "pipe(lambda n: n.fill_null(0))")
        return AggregateExpr(result, self.calls, f"{self}.pipe(…)")


def _operand(other: object) -> pl.Expr:
    if isinstance(other, AggregateExpr):
        return other.expr
    if isinstance(other, pl.Expr):
        raise PlanError(
            f"aggregate: {other} is not an aggregate; arithmetic takes aggregates and constants",
            "aggregate the column first, as in sq.sum('x') * 2, or use with_columns afterwards.",
        )
    if other is not None and not isinstance(other, CONSTANTS):
        raise PlanError(
            f"aggregate: {shortened(other)} is {articled(type(other).__name__)}; "
            "arithmetic takes aggregates and constants",
            "write sq.sum('x') / sq.count() or sq.sum('x') * 2.",
        )
    return pl.lit(other)


@dataclass(frozen=True)
class BoundAggregate:
    """One aggregate with its inputs bound to the stream's columns and its result type known."""

    kind: str
    placeholder: str
    inputs: tuple[Expression, ...]
    where: Expression | None
    order_by: tuple[Expression, ...]
    descending: tuple[bool, ...]
    options: tuple[tuple[str, object], ...]
    dtype: pl.DataType = field(compare=False)
    user: UserAggregate | None = None

    def option(self, name: str) -> Any:
        return dict(self.options)[name]

    def has_option(self, name: str) -> bool:
        return any(name == other for other, _ in self.options)

    def __str__(self) -> str:
        arguments = [item.source_column or item.text for item in self.inputs]
        arguments += [f"{name}={value!r}" for name, value in self.options]
        if self.where is not None:
            arguments.append(f"where={self.where.text}")
        return f"{SHOWN.get(self.kind, self.kind)}({', '.join(arguments)})"


def bind_call(call: AggregateCall, scope: Scope) -> BoundAggregate:
    """Look the call's columns up and derive its result type."""
    what = f"aggregate {call.kind}"
    inputs = tuple(bind_one(item, scope, what) for item in call.inputs)
    where = None if call.where is None else bind_predicate(call.where, scope, what)
    order_by = tuple(bind_one(item, scope, what) for item in call.order_by)
    bound = BoundAggregate(
        kind=call.kind,
        placeholder=call.placeholder,
        inputs=inputs,
        where=where,
        order_by=order_by,
        descending=tuple(False for _ in order_by),
        options=call.options,
        dtype=pl.Null(),
        user=call.user,
    )
    return replace(bound, dtype=result_type(bound, scope.schema))


def result_type(call: BoundAggregate, payload: Schema) -> pl.DataType:
    """Return the type of an aggregate's result, or raise when its input does not fit."""
    match call.kind:
        case "count" | "count_not_null":
            return pl.Int64()
        case "count_distinct":
            counted = call.inputs[0]
            if isinstance(counted.dtype, pl.Object):
                raise PlanError(
                    f"aggregate count_distinct: column {counted.name!r} holds Python objects, which cannot be compared",
                    "count what is computed from it, or use sq.count_not_null.",
                )
            return pl.Int64()
        case "sum" | "product":
            return _number_type(call, call.inputs[0].dtype)
        case "mean" | "var" | "std" | "percentile":
            return _float_type(call, call.inputs[0].dtype)
        case "min" | "max":
            return _ordered_type(call, call.inputs[0].dtype)
        case "first" | "last":
            _check_row_order(call, payload)
            return call.inputs[0].dtype
        case "collect_list":
            _check_row_order(call, payload)
            return pl.List(call.inputs[0].dtype)
        case "top_k":
            _check_row_order(call, payload)
            return _ranked_rows(call, payload)
        case "user":
            assert call.user is not None
            return call.user.dtype
        case _:
            raise PlanError(f"aggregate: unknown kind {call.kind!r}")


def _refuse(call: BoundAggregate, dtype: pl.DataType, accepted: str) -> PlanError:
    wrong = "which has more than 64 bits" if dtype.is_integer() else f"not {accepted}"
    hint = "cast it first, or use sq.count_not_null, sq.first or sq.collect_list, which take any type."
    if isinstance(dtype, pl.Object):
        hint = "compute a number from it in map_batches(fn, schema=…), or use sq.count_not_null, which takes any type."
    return PlanError(f"aggregate {call.kind}: column {call.inputs[0].name!r} is {dtype}, {wrong}", hint)


def _ordered_type(call: BoundAggregate, dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.Object):
        raise _refuse(call, dtype, SUPPORTED_ORDER)
    return dtype


def _check_row_order(call: BoundAggregate, payload: Schema) -> None:
    """Rows are told apart and ordered by their payload, so all of it must have an order."""
    ordering = {**payload, **{item.name: item.dtype for item in (*call.inputs, *call.order_by)}}
    for name, dtype in ordering.items():
        if isinstance(dtype, pl.Object):
            raise PlanError(
                f"aggregate {call.kind}: rows are ordered by their payload, but column {name!r} holds Python objects",
                "leave it out with .drop(…) before, or say how they become bytes: make it in map_batches(…, "
                f"schema={{{name!r}: sq.codec(…)}}).",
            )


def _ranked_rows(call: BoundAggregate, payload: Schema) -> pl.DataType:
    _ordered_type(call, call.inputs[0].dtype)
    if "rank" in payload:
        raise PlanError(
            "aggregate top_k: the rows have a column 'rank', the name of the rank in the result",
            "give it another name with .rename({'rank': …}) before.",
        )
    return pl.List(pl.Struct({"rank": pl.Int64(), **payload}))


def _number_type(call: BoundAggregate, dtype: pl.DataType) -> pl.DataType:
    if dtype.is_float():
        return pl.Float64()
    if isinstance(dtype, pl.Decimal):
        if call.kind == "product":
            raise _refuse(call, dtype, "an integer or a float")
        return pl.Decimal(38, dtype.scale)
    if _is_word(dtype) or isinstance(dtype, (pl.Boolean, pl.Null)):
        return pl.Int64()
    if isinstance(dtype, pl.Duration) and call.kind == "sum":
        return dtype
    raise _refuse(call, dtype, NUMBERS if call.kind == "sum" else "an integer or a float")


def _is_word(dtype: pl.DataType) -> bool:
    return dtype.is_integer() and not isinstance(dtype, (pl.Int128, pl.UInt128))


def _float_type(call: BoundAggregate, dtype: pl.DataType) -> pl.DataType:
    if dtype.is_float() or _is_word(dtype) or isinstance(dtype, (pl.Boolean, pl.Null, pl.Decimal)):
        if call.kind == "percentile" and call.option("discrete"):
            return dtype
        return pl.Float64()
    if call.kind == "percentile" and call.option("discrete") and dtype.is_temporal():
        return dtype
    raise _refuse(call, dtype, "a number or a Boolean")


def calls_of(named: dict[str, object]) -> dict[str, AggregateExpr]:
    """Return the arguments of `aggregate(...)`, refusing what is not an aggregate."""
    checked: dict[str, AggregateExpr] = {}
    for name, given in named.items():
        if not isinstance(given, AggregateExpr):
            raise PlanError(
                f"aggregate: {name}={shortened(given)} is not an aggregate",
                "use sq.count(), sq.sum('x'), sq.max('x'), … or arithmetic over them.",
            )
        checked[name] = given
    return checked


def distinct_calls(named: dict[str, AggregateExpr]) -> Sequence[AggregateCall]:
    calls: dict[str, AggregateCall] = {}
    for aggregate in named.values():
        calls.update(aggregate.calls)
    return tuple(calls.values())
