"""Build `detect`: look up the columns of a pattern, find the types of its registers, check its functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import polars as pl

from squill.arguments import checked_flag
from squill.errors import ColumnNotFoundError, PlanError
from squill.plan.build.checks import refuse_lost_codecs, refuse_object_order
from squill.plan.codec import Codec
from squill.plan.expressions import Expression, bind_one, bind_predicate
from squill.plan.node import Node
from squill.plan.nodes import Detect
from squill.plan.nodes.patterns import COLUMN, REGISTER, START_TICKS, Element, FunctionCall, PatternTree, Register
from squill.plan.pattern import ELEMENTS, Pattern, as_pattern
from squill.time import Duration, TimeType
from squill.wording import shortened

__all__ = ["bind_order", "detect", "ordered_time"]

COMPUTED_TYPES = "Int64, Float64 or Boolean"
NARROW = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float16, pl.Float32)


def ordered_time(node: Node, operator: str) -> TimeType:
    """Return the stream's time type, or refuse relational data."""
    if node.time is None:
        raise PlanError(
            f"{operator}: relational data is alive at every instant, so its events have no order",
            "give the input a time: sq.from_frame(frame, start='ts').",
        )
    return node.time


def bind_order(given: object, node: Node, operator: str) -> tuple[Expression, ...]:
    """Return the columns that simultaneous events are ordered by; then comes the payload."""
    several = () if given is None else tuple(given) if isinstance(given, (list, tuple)) else (given,)
    bound = tuple(bind_one(item, node.scope, f"{operator}: order_by") for item in several)
    refuse_object_order(f"{operator}: order_by", node.codecs, bound)
    return bound


def detect(
    node: Node, keys: Sequence[str], pattern: object, within: Duration | None, overlap: object, order_by: object
) -> Node:
    time = ordered_time(node, "detect")
    whole = as_pattern(pattern, "detect")
    binder = _Binder(node, tuple(keys), whole)
    order = None if order_by is None else bind_order(order_by, node, "detect")
    if order == ():
        raise PlanError("detect: order_by names no column", "name one, or leave it out to refuse simultaneous events.")
    built = Detect(
        parent=node,
        elements=tuple(binder.element(item) for item in _leaves(whole)),
        tree=_tree(whole, iter(range(len(binder.leaves)))),
        registers=tuple(binder.registers.values()),
        within=None if within is None else time.positive(within, "detect: within"),
        overlap=checked_flag(overlap, "detect: overlap"),
        order_by=order,
        keys=tuple(keys),
    )
    built.schema.without_time_names("detect")
    return built


def _leaves(pattern: Pattern) -> Iterator[Pattern]:
    if pattern.kind in ELEMENTS:
        yield pattern
    for part in pattern.parts:
        yield from _leaves(part)


def _tree(pattern: Pattern, numbers: Iterator[int]) -> PatternTree:
    """Return the combination with its elements numbered from left to right; one used twice has two numbers."""
    if pattern.kind in ELEMENTS:
        return PatternTree("element", element=next(numbers))
    return PatternTree(pattern.kind, tuple(_tree(part, numbers) for part in pattern.parts))


@dataclass
class _Binder:
    """One pattern over one stream."""

    node: Node
    keys: tuple[str, ...]
    pattern: Pattern
    leaves: tuple[Pattern, ...] = field(init=False)
    registers: dict[str, Register] = field(init=False)

    def __post_init__(self) -> None:
        self.leaves = tuple(_leaves(self.pattern))
        self.registers = {name: _declared(name, value) for name, value in self.pattern.initial.items()}
        for name in self._updated_names():
            if name not in self.registers:
                self.registers[name] = self._inferred(name)
        for name in self.registers:
            self._check_codec(name)
            if name in self.keys:
                raise PlanError(f"detect: {name!r} is a key of this group", "choose another name for the register.")

    def _check_codec(self, name: str) -> None:
        """Raise when a register would hold Python objects at one time and plain bytes, or others, at another."""
        updates = self._updates_of(name)
        bound = [self._expression(name, update) for update in updates if not _is_function(update)]
        refuse_lost_codecs(f"detect: register {name!r}", self.node.codecs, bound)
        codecs = {self._codec(item) for item in bound if item.dtype != pl.Null}
        if len(bound) < len(updates) or self.registers[name].initial is not None:
            codecs.add(None)
        if len(codecs) > 1:
            raise PlanError(
                f"detect: the register {name!r} is set to Python objects of a codec, and to what is none",
                "set it to columns of one codec everywhere, and let it be null at first.",
            )

    def _codec(self, item: Expression) -> Codec | None:
        return None if item.source_column is None else self.node.codecs.get(item.source_column)

    def _updated_names(self) -> list[str]:
        return list(dict.fromkeys(name for leaf in self.leaves for name in leaf.updates))

    def _updates_of(self, name: str) -> list[Any]:
        return [leaf.updates[name] for leaf in self.leaves if name in leaf.updates]

    def _inferred(self, name: str) -> Register:
        """Return a register that is null at first, of the type of the expressions that set it."""
        updates = self._updates_of(name)
        if any(_is_function(update) for update in updates):
            raise PlanError(
                f"detect: a function computes the register {name!r}, which has no first value",
                f"give the pattern one, which also says its type: .with_registers({name}=0).",
            )
        types = list(dict.fromkeys(self._expression(name, update).dtype for update in updates))
        if len(types) > 1:
            raise PlanError(
                f"detect: the register {name!r} is set to {types[0]} and to {types[1]}",
                "cast one of them, or give a first value of the wider type with .with_registers(…).",
            )
        return Register(name, types[0], None)

    def _expression(self, name: str, update: Any) -> Expression:
        return bind_one(update, self.node.scope, f"detect: register {name!r}").renamed(name)

    def element(self, leaf: Pattern) -> Element:
        scope = self.node.scope
        expressions = [item for item in leaf.conditions if isinstance(item, pl.Expr)]
        functions = [item for item in leaf.conditions if not isinstance(item, pl.Expr)]
        for item in expressions:
            bind_predicate(item, scope, "detect")
        both = reduce(lambda a, b: a & b, expressions) if expressions else None
        return Element(
            scope=leaf.kind,
            condition=None if both is None else bind_predicate(both, scope, "detect"),
            tests=tuple(self._call(function, "condition") for function in functions),
            updates=tuple((name, self._update(name, update)) for name, update in leaf.updates.items()),
        )

    def _update(self, name: str, update: Any) -> Expression | FunctionCall:
        register = self.registers[name]
        if _is_function(update):
            if isinstance(register.dtype, NARROW):
                raise PlanError(
                    f"detect: a function computes the register {name!r}, which is {register.dtype}",
                    f"use {COMPUTED_TYPES}, and cast afterwards.",
                )
            return self._call(update, f"register {name!r}")
        bound = self._expression(name, update)
        if bound.dtype == register.dtype:
            return bound
        if not _widens(bound.dtype, register.dtype):
            raise PlanError(
                f"detect: the register {name!r} is {register.dtype}, but it is set to {bound}, which is {bound.dtype}",
                "cast it, or give another first value with .with_registers(…).",
            )
        given = pl.col(update) if isinstance(update, str) else update
        return self._expression(name, (given if isinstance(given, pl.Expr) else pl.lit(given)).cast(register.dtype))

    def _call(self, function: Callable[..., Any], what: str) -> FunctionCall:
        name = getattr(function, "__name__", repr(function))
        where = f"detect: the {what}, function {name!r}"
        return FunctionCall(function, tuple(self._argument(item, where) for item in _parameters(function, where)))

    def _argument(self, name: str, where: str) -> tuple[str, str]:
        columns = self.node.schema
        if name == START_TICKS:
            return START_TICKS, name
        if name in self.registers and name in columns and name not in self.keys:
            raise PlanError(
                f"{where}: its parameter {name!r} is both a register and a column",
                "give the register another name.",
            )
        if name in self.registers:
            return REGISTER, name
        if name not in columns:
            raise ColumnNotFoundError(where, name, [*self.registers, *columns])
        return COLUMN, name


def _is_function(update: object) -> bool:
    return callable(update) and not isinstance(update, pl.Expr)


def _parameters(function: Callable[..., Any], where: str) -> list[str]:
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise PlanError(f"{where}: its parameters cannot be read", "wrap it: lambda x: f(x).") from error
    for item in parameters.values():
        if item.kind not in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD):
            raise PlanError(
                f"{where}: its parameter {item.name!r} does not name a register or a column",
                "name each value that it needs: lambda total, x: total + x.",
            )
    return [name for name, item in parameters.items() if item.default is item.empty]


def _declared(name: str, value: object) -> Register:
    series = _constant(name, value)
    if isinstance(series.dtype, (pl.Null, pl.Object)):
        raise PlanError(
            f"detect: the first value {shortened(value)} of the register {name!r} says no type",
            f"write {name}=0, or a null of a type: pl.lit(None, pl.Int64).",
        )
    return Register(name, series.dtype, series[0])


def _constant(name: str, value: object) -> pl.Series:
    try:
        series = pl.select(value).to_series() if isinstance(value, pl.Expr) else pl.Series([value])
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise PlanError(
            f"detect: the first value {value} of the register {name!r} is no constant: {error}", "total=0"
        ) from error
    if len(series) != 1:
        raise PlanError(f"detect: the first value of the register {name!r} has {len(series)} values", "give one.")
    return series


def _widens(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether every value of the one type is one of the other."""
    if isinstance(given, pl.Null):
        return True
    if isinstance(wanted, pl.Int64):
        return given.is_integer() and not isinstance(given, (pl.UInt64, pl.Int128, pl.UInt128))
    return isinstance(wanted, pl.Float64) and (given.is_float() or given.is_integer())
