"""Aggregate over relational data: one snapshot, left to Polars' group-by with our types and checks.

Polars needs all rows at once. Those of a frame are in memory anyway; what comes from files, from other shards or out
of a join may be more than there is room for, so beyond a limit the incremental fold takes over, which holds one state
per key. It takes 1.6 times as long (10 M rows, 300 k keys, one core).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from squill.engine.aggregation.folds import masked_inputs
from squill.engine.aggregation.whole_sums import exact_sum, largest_magnitude
from squill.engine.batch import Batch
from squill.engine.columns import framed, joined
from squill.engine.expressions import Evaluator
from squill.engine.machine_memory import state_share
from squill.engine.operator import Belongs, Operator, OperatorState
from squill.errors import NumericOverflowError
from squill.plan.aggregates import BoundAggregate
from squill.plan.expression_text import serialise
from squill.plan.expressions import Expression
from squill.plan.node import walk
from squill.plan.nodes import Aggregate, FrameSource
from squill.time import INFINITY

__all__ = ["RelationalAggregateOperator", "can_lower"]

Lowering = Callable[[Any, BoundAggregate], Any]
"""From an expression to an expression, or from a Series to its number: Polars calls both the same."""


def _largest(x: Any, call: BoundAggregate) -> Any:
    # In our order NaN is the largest value; Polars' max leaves it out.
    return x.nan_max() if call.inputs[0].dtype.is_float() else x.max()


LOWERINGS: dict[str, Lowering] = {
    "count_not_null": lambda x, _: x.count(),
    "sum": lambda x, _: x.sum(),
    "mean": lambda x, _: x.mean(),
    "var": lambda x, call: x.var(call.option("ddof")),
    "std": lambda x, call: x.std(call.option("ddof")),
    "min": lambda x, _: x.min(),
    "max": _largest,
}


def _kind(call: BoundAggregate) -> str:
    """The kind of the aggregate over its masked inputs; see `masked_inputs`."""
    return "count_not_null" if call.kind == "count" else call.kind


HELD_BYTES = 256 * 1024 * 1024
"""How much is held of rows that are not in memory anyway."""


def can_lower(node: Aggregate) -> bool:
    """True when Polars gives the same answer for every aggregate of the node."""
    return node.is_relational and all(_is_lowerable(call) for call in node.calls)


def _may_outgrow_memory(node: Aggregate) -> bool:
    """True unless the rows are those of one frame."""
    return any(len(item.inputs) != 1 and not isinstance(item, FrameSource) for item in walk(node.parent))


def _is_lowerable(call: BoundAggregate) -> bool:
    if call.kind == "count":
        return True
    if call.kind not in LOWERINGS:
        return False
    dtype = call.inputs[0].dtype
    if _is_wide(call):
        return isinstance(dtype, (pl.Int64, pl.Decimal)) and not isinstance(call.dtype, pl.Duration)
    numeric = (dtype.is_integer() or dtype.is_float()) and dtype not in (pl.UInt64(), pl.Int128(), pl.UInt128())
    return numeric or (call.kind == "count_not_null") or (call.kind in ("min", "max") and dtype.is_temporal())


def _is_wide(call: BoundAggregate) -> bool:
    """True for the two halves of a sum of long integers, between which it is a Decimal that holds any."""
    return call.has_option("wide") or call.has_option("narrow")


def _widened(item: Expression, call: BoundAggregate) -> Expression:
    """Return the input in the type that its sum needs: Polars adds 32-bit integers in 32 bits and wraps.

    A cast inside the group-by would leave Polars' fast path, so it happens before, and only where it must.
    """
    adds = call.kind in ("sum", "mean", "var", "std") and not _is_wide(call)
    wide = call.dtype if adds else item.dtype
    if item.dtype == wide:
        return item
    expr = item.expr.cast(wide)
    return Expression(serialise(expr), item.name, wide, item.roots)


def _may_overflow(call: BoundAggregate, rows: int) -> bool:
    """True for sums of long integers; of shorter ones 2^31 fit into 64 bits in any case."""
    if call.kind != "sum" or isinstance(call.inputs[0].dtype, pl.Decimal):
        return False
    return call.inputs[0].dtype == pl.Int64() or (call.dtype == pl.Int64() and rows > 2**31)


def _overflow(call: BoundAggregate) -> NumericOverflowError:
    return NumericOverflowError(
        f"aggregate {call}: the sum leaves the 64-bit range",
        "sum a Float64 or a Decimal instead: sq.sum(sq.col('x').cast(pl.Float64)).",
    )


def _in_type(found: pl.Series, call: BoundAggregate) -> pl.Series:
    """Return the values in the aggregate's own type; a sum that was kept wide must fit it."""
    values = found.cast(call.dtype, strict=not call.has_option("narrow"))
    if values.null_count() > found.null_count():
        raise _overflow(call)
    return values


class RelationalAggregateOperator(Operator):
    """Holds the columns that are needed until the input ends; nothing comes out before.

    `make_fold` makes the operator that takes over when they are too many.
    """

    def __init__(self, node: Aggregate, make_fold: Callable[[Aggregate], Operator]) -> None:
        super().__init__(node)
        self._node = node
        inputs: list[Expression] = []
        self._input_of: dict[str, str] = {}
        for number, call in enumerate(node.calls):
            for item in masked_inputs(call):
                self._input_of[call.placeholder] = f"{number}:input"
                inputs.append(_widened(item, call).renamed(f"{number}:input"))
        self._needed = dict.fromkeys([*node.keys, *(root for item in inputs for root in item.roots)])
        self._inputs = Evaluator(inputs, None, "aggregate")
        self._counts_only = not node.keys and not inputs
        self._results = Evaluator(node.columns, None, "aggregate")
        self._held: list[Batch] = []
        self._make_fold = make_fold
        self._fold: Operator | None = None
        self._is_limited = _may_outgrow_memory(node)
        self._held_bytes = 0

    def push(self, batch: Batch, port: int = 0) -> None:
        if self._fold is not None:
            self._fold.push(batch)
            return
        columns = {name: batch.columns[name] for name in self._needed}
        self._held.append(Batch.relational(columns, len(batch)))
        if self._is_limited:
            self._held_bytes += sum(int(series.estimated_size()) for series in columns.values())
            if self._held_bytes > min(HELD_BYTES, self._share):
                self._hand_over()

    @cached_property
    def _share(self) -> int:
        return state_share()

    def _hand_over(self) -> None:
        fold = self._begin_fold()
        held, self._held = deque(self._held), []
        while held:
            fold.push(held.popleft())

    def _begin_fold(self) -> Operator:
        self._fold = self._make_fold(self._node)
        self._fold.consumers = self.consumers
        self._fold.demand = self.demand
        self._fold.checkpoint = self.checkpoint
        self._fold.clock = self.clock
        return self._fold

    def advance(self, t: int, port: int = 0) -> None:
        if self._fold is not None:
            self._fold.advance(t)
            self.clock = self._fold.clock
            return
        if t == INFINITY and self._held:
            self._emit_groups()
        self.emit_clock(t)

    def _emit_groups(self) -> None:
        rows = sum(map(len, self._held))
        frame = pl.DataFrame({"rows": pl.repeat(0, rows, eager=True)}) if self._counts_only else self._input_frame()
        self._held = []
        computed = self._by_key(frame) if self._node.keys else self._whole(frame)
        found = {series.name: series.rechunk() for series in computed}
        groups = len(next(iter(found.values())))
        results = {call.placeholder: _in_type(found[call.placeholder], call) for call in self._node.calls}
        keys = {name: found[name] for name in self._node.keys}
        self.emit(Batch.relational({**keys, **self._results(Batch.relational(results, groups))}, groups))

    def _input_frame(self) -> pl.DataFrame:
        """Return the keys and the aggregates' inputs, in the pieces that the rows came in."""
        pieces = [
            {**{name: batch.columns[name] for name in self._node.keys}, **self._inputs(batch)} for batch in self._held
        ]
        return framed([joined([piece[name] for piece in pieces]) for name in pieces[0]])

    def _whole(self, frame: pl.DataFrame) -> list[pl.Series]:
        """The one row over everything; long integers are added exactly, which takes no longer than to wrap."""
        found: list[pl.Series] = []
        for call in self._node.calls:
            if _is_wide(call):
                found.append(pl.Series(call.placeholder, [self._wide_number(call, frame)], pl.Int128))
            elif call.inputs and call.inputs[0].dtype.is_temporal():
                # A time of Python's would lose its nanoseconds.
                found += frame.select(self._lowered(call)).get_columns()
            else:
                found.append(pl.Series(call.placeholder, [self._number(call, frame)], call.dtype))
        return found

    def _wide_number(self, call: BoundAggregate, frame: pl.DataFrame) -> int:
        column = frame.get_column(self._input_of[call.placeholder])
        return int(column.sum()) if isinstance(column.dtype, pl.Decimal) else exact_sum(column)

    def _number(self, call: BoundAggregate, frame: pl.DataFrame) -> object:
        if call.kind == "count" and call.where is None:
            return frame.height
        column = frame.get_column(self._input_of[call.placeholder])
        if not _may_overflow(call, frame.height):
            # Asked of the column itself: a query, which Polars plans, costs as much as the sum of a million rows.
            return LOWERINGS[_kind(call)](column, call)
        total = exact_sum(column)
        if not -(2**63) <= total < 2**63:
            raise _overflow(call)
        return total

    def _by_key(self, frame: pl.DataFrame) -> list[pl.Series]:
        large = [call for call in self._node.calls if self._is_large(call, frame)]
        wide = [call for call in large if _is_wide(call)]
        checked = [call for call in large if call not in wide]
        aggregates = [self._lowered(call) for call in self._node.calls if call not in wide]
        aggregates += [self._exact(call).alias(call.placeholder) for call in wide]
        checks = [self._exact(call) for call in checked]
        # The lazy engine groups in pieces and is twice as fast as the eager one.
        groups = frame.lazy().group_by(list(self._node.keys)).agg(*aggregates, *checks).collect()
        for call in checked:
            if (groups[f"{call.placeholder}:exact"] != groups[call.placeholder].cast(pl.Int128)).any():
                raise _overflow(call)
        return groups.get_columns()

    def _lowered(self, call: BoundAggregate) -> pl.Expr:
        if call.kind == "count" and call.where is None:
            return pl.len().alias(call.placeholder)
        x = pl.col(self._input_of[call.placeholder])
        value = LOWERINGS[_kind(call)](x, call)
        if call.kind in ("var", "std") and call.option("ddof") == 0:
            # Of a frame with one row Polars says 0 even when that is null.
            value = pl.when(x.count() > 0).then(value)
        return value.alias(call.placeholder)

    def _exact(self, call: BoundAggregate) -> pl.Expr:
        """The exact sum beside the 64-bit one."""
        return pl.col(self._input_of[call.placeholder]).cast(pl.Int128).sum().alias(f"{call.placeholder}:exact")

    def _is_large(self, call: BoundAggregate, frame: pl.DataFrame) -> bool:
        """True when some group's sum could leave 64 bits."""
        if not _may_overflow(call, frame.height):
            return False
        column = frame.get_column(self._input_of[call.placeholder])
        return largest_magnitude(column) * frame.height >= 2**63

    def let_go(self) -> None:
        if self._fold is not None:
            self._fold.let_go()
        super().let_go()

    def save(self) -> OperatorState:
        fold = None if self._fold is None else self._fold.save()
        return {"clock": self.clock, "held": list(self._held), "held_bytes": self._held_bytes, "fold": fold}

    def load(self, state: OperatorState) -> None:
        self.clock, self._held_bytes = state["clock"], state["held_bytes"]
        self._held = list(state["held"])
        if state["fold"] is not None:
            self._begin_fold().load(state["fold"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if self._fold is not None:
            return self._fold.keep(belongs)
        if mine is not None:
            if not mine.can_ask(self._needed):
                return False
            self._held = [batch.filter(mine(batch.columns)) for batch in self._held]
        return True

    @property
    def state_rows(self) -> int:
        return sum(map(len, self._held)) if self._fold is None else self._fold.state_rows
