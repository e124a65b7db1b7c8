"""Split an aggregate into one per shard and one over what the shards found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from squill.plan.aggregates import BoundAggregate, UserAggregate
from squill.plan.expression_text import dump_tree, load_tree, serialise
from squill.plan.expressions import Expression, column
from squill.plan.node import Node
from squill.plan.nodes import Aggregate
from squill.plan.row_wise import walk as walk_expression

__all__ = ["SplitAggregate", "split_aggregate"]

Options = tuple[tuple[str, object], ...]

WIDE = pl.Decimal(38, 0)
"""Holds the sum of any number of 64-bit integers: of some shards it may leave 64 bits where that of all does not."""
WIDENED = (("wide", True),)
NARROWED = (("narrow", True),)
STATE_TYPES: dict[type, pl.DataType] = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}
NOT_SPLIT = (pl.Decimal, pl.Null)
"""A sum of Decimals may have too many digits on a shard and not in all; of nothing but nulls there is no type."""


@dataclass(frozen=True)
class SplitAggregate:
    """`partial` runs on each shard; `final` makes of its rows, wherever they came together, the answer."""

    partial: Aggregate
    final: Callable[[Node], Aggregate]


def split_aggregate(node: Aggregate) -> SplitAggregate | None:
    """Return the two halves, or None when the values of parts do not say the value of the whole.

    ::

        aggregate(n=count(), m=mean(x))
        →
        aggregate(count()=sum(count()), m=sum(sum(x)) / sum(count_not_null(x)))
          aggregate(count()=count(), sum(x)=sum(x), count_not_null(x)=count_not_null(x))

    Counts, sums, means and extremes are split, and so are users' aggregates with `merge`, whose states are sent; sums
    of long integers are kept wide until all of them are added.
    Products may overflow on a shard and not in all, and variances would lose digits when they are put together
    from those of shards. Nor is an aggregate split that has intervals: they are computed from its own calls, once it
    is known how rows are sampled.
    """
    if node.estimated:
        return None
    parts = _Parts(node.keys)
    values: dict[str, pl.Expr] = {}
    for call in node.calls:
        split = SPLITS.get(call.kind)
        value = None if split is None else split(parts, call)
        if value is None:
            return None
        values[call.placeholder] = value
    partial = replace(node, calls=tuple(parts.before), columns=tuple(parts.columns))
    columns = tuple(_over(item, values) for item in node.columns)

    def final(parent: Node) -> Aggregate:
        return replace(node, parent=parent, calls=tuple(parts.after), columns=columns)

    return SplitAggregate(partial, final)


class _Parts:
    """What the halves compute: calls over the rows, and calls over those calls' values; equal ones once."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.before: list[BoundAggregate] = []
        self.columns: list[Expression] = []
        self.after: list[BoundAggregate] = []
        self._taken = set(keys)
        self._names: dict[BoundAggregate, str] = {}
        self._states: dict[BoundAggregate, tuple[Expression, ...]] = {}
        self._values: dict[BoundAggregate, str] = {}

    def part(self, call: BoundAggregate, kind: str, dtype: pl.DataType, options: Options = ()) -> Expression:
        """Return the column in which each shard has its value of `kind` of the call's input."""
        wanted = replace(call, kind=kind, placeholder="", options=options, dtype=dtype)
        if wanted not in self._names:
            part = replace(wanted, placeholder=f"__part_{len(self.before)}__")
            self._names[wanted] = self._free_name(str(replace(wanted, options=())))
            self.before.append(part)
            self.columns.append(column(part.placeholder, dtype).renamed(self._names[wanted]))
        return column(self._names[wanted], dtype)

    def states(self, call: BoundAggregate, types: Sequence[pl.DataType]) -> tuple[Expression, ...]:
        """Return the columns in which each shard has its state of a user's aggregate, one for each element."""
        wanted = replace(call, kind="user_states", placeholder="", dtype=pl.Null())
        if wanted not in self._states:
            fields = {str(number): dtype for number, dtype in enumerate(types)}
            part = replace(wanted, placeholder=f"__part_{len(self.before)}__", dtype=pl.Struct(fields))
            self.before.append(part)
            elements = []
            for field, dtype in fields.items():
                element = pl.col(part.placeholder).struct.field(field)
                name = self._free_name(f"{call}[{field}]")
                elements.append(Expression(serialise(element), name, dtype, (part.placeholder,)))
            self.columns += elements
            self._states[wanted] = tuple(column(item.name, item.dtype) for item in elements)
        return self._states[wanted]

    def whole(self, part: Expression, kind: str, dtype: pl.DataType, options: Options = ()) -> pl.Expr:
        """Return the value of `kind` of all shards' values."""
        wanted = BoundAggregate(
            kind=kind,
            placeholder="",
            inputs=(part,),
            where=None,
            order_by=(),
            descending=(),
            options=options,
            dtype=dtype,
        )
        return self.over_parts(wanted)

    def over_parts(self, wanted: BoundAggregate) -> pl.Expr:
        """Return the value of a call over what the shards found."""
        if wanted not in self._values:
            self._values[wanted] = f"__whole_{len(self.after)}__"
            self.after.append(replace(wanted, placeholder=self._values[wanted]))
        return pl.col(self._values[wanted])

    def _free_name(self, text: str) -> str:
        name, number = text, 1
        while name in self._taken:
            number += 1
            name = f"{text} #{number}"
        self._taken.add(name)
        return name


def _count(parts: _Parts, call: BoundAggregate) -> pl.Expr:
    return parts.whole(parts.part(call, call.kind, pl.Int64()), "sum", pl.Int64())


def _extreme(parts: _Parts, call: BoundAggregate) -> pl.Expr:
    return parts.whole(parts.part(call, call.kind, call.dtype), call.kind, call.dtype)


def _sum(parts: _Parts, call: BoundAggregate) -> pl.Expr | None:
    if isinstance(call.inputs[0].dtype, NOT_SPLIT):
        return None
    return parts.whole(_part_of_sum(parts, call), "sum", call.dtype, _narrowed(call))


def _mean(parts: _Parts, call: BoundAggregate) -> pl.Expr | None:
    if isinstance(call.inputs[0].dtype, NOT_SPLIT):
        return None
    part = _part_of_sum(parts, call)
    total = parts.whole(part, "sum", part.dtype, WIDENED if part.dtype == WIDE else ())
    count = parts.whole(parts.part(call, "count_not_null", pl.Int64()), "sum", pl.Int64())
    return pl.when(count > 0).then(total.cast(pl.Float64) / count)


def _user(parts: _Parts, call: BoundAggregate) -> pl.Expr | None:
    if call.user is None or call.user.merge is None:
        return None
    types = _state_types(call.user)
    if types is None:
        return None
    states = parts.states(call, types)
    return parts.over_parts(replace(call, kind="user_merge", placeholder="", inputs=states, where=None))


def _state_types(user: UserAggregate) -> list[pl.DataType] | None:
    """Return the types of the state's elements; None when it is no tuple of numbers, which has no columns."""
    try:
        initial = user.init()
    except Exception:  # noqa: BLE001 (whatever a user's function raises is told where the query runs)
        return None
    if not isinstance(initial, tuple) or not initial or any(type(item) not in STATE_TYPES for item in initial):
        return None
    return [STATE_TYPES[type(item)] for item in initial]


def _part_of_sum(parts: _Parts, call: BoundAggregate) -> Expression:
    dtype = call.inputs[0].dtype
    if _may_leave_64_bits(dtype):
        return parts.part(call, "sum", WIDE, WIDENED)
    return parts.part(call, "sum", pl.Float64() if dtype.is_float() else pl.Int64())


def _narrowed(call: BoundAggregate) -> Options:
    return NARROWED if _may_leave_64_bits(call.inputs[0].dtype) else ()


def _may_leave_64_bits(dtype: pl.DataType) -> bool:
    """Whether so many rows as a shard may have can sum up to more than 64 bits; of half as long numbers none do."""
    return isinstance(dtype, (pl.Int64, pl.UInt64, pl.Duration))


SPLITS: dict[str, Callable[[_Parts, BoundAggregate], pl.Expr | None]] = {
    "count": _count,
    "count_not_null": _count,
    "max": _extreme,
    "mean": _mean,
    "min": _extreme,
    "sum": _sum,
    "user": _user,
}


def _over(item: Expression, values: dict[str, pl.Expr]) -> Expression:
    """Return the output with what stands for a call replaced by how it is had from the parts."""
    trees = {name: load_tree(serialise(value)) for name, value in values.items()}
    tree = _with_trees(load_tree(item.serialised), trees)
    roots = dict.fromkeys(name for kind, name in walk_expression(tree) if kind == "Column")
    return replace(item, serialised=dump_tree(tree), roots=tuple(roots))


def _with_trees(tree: object, trees: dict[str, object]) -> object:
    if isinstance(tree, list):
        return [_with_trees(item, trees) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"Column"} and tree["Column"] in trees:
        return trees[tree["Column"]]
    return {key: _with_trees(item, trees) for key, item in tree.items()}
