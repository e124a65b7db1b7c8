"""Folds that read positions of an ordered multiset: min, max, percentile, first, last.

All calls over the same values share one multiset: the first of them owns it, applies the deltas and reads
every position that was asked for, and the others only take their part of what was read. Where no event ever
ends and only the two ends of the order are asked for, two codes per slot take the place of the multiset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from squill.engine.aggregation.fold_codes import Codes, RowCodes, codes_for
from squill.engine.aggregation.fold_nulls import NullFold
from squill.engine.aggregation.fold_sums import delta_arguments
from squill.engine.aggregation.folds import Array, Fold, FoldContext, register_fold
from squill.engine.aggregation.interned import NOBODY, Interned
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots
from squill.engine.buffers import Scratch, grown
from squill.engine.columns import as_float64, read_only, series_from, valid_of
from squill.engine.kernels import fold_order as kernels
from squill.engine.kernels.arrange import CELL_SIZE, CHANGE_SIZE, GROUP_SIZE, arrange
from squill.engine.kernels.multiset import apply_changes
from squill.engine.multiset import Multisets
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.row_starts import row_starts
from squill.errors import InternalError
from squill.plan.aggregates import BoundAggregate

__all__ = [
    "ArrivalFold", "CodeMultisets", "Ordered", "RankFold", "absent_value", "kept_rows", "rows_in_order", "take_rows",
]  # fmt: skip


class CodeMultisets:
    """An ordered multiset of codes per slot, and the way from deltas to changes of it."""

    def __init__(self, interned: Interned | None) -> None:
        self._interned = interned
        self._multisets = Multisets(byte_order=interned is not None)
        self._group_of = np.empty(16, np.int32)
        self._scratch = Scratch()

    def ensure_slots(self, capacity: int) -> None:
        self._multisets.ensure_slots(capacity)
        self._group_of = grown(self._group_of, capacity, None)

    def apply(self, deltas: Deltas, column: Column, call: object) -> None:
        """Apply the deltas, of which nothing is read; `call` names, in an error, what they are for."""
        changes, _, state = self.arguments(deltas, column, across_instants=True)
        bad = apply_changes(state, changes)
        if bad >= 0:
            raise absent_value(call, changes, bad)

    def held(self, slots: Array) -> Array:
        """Return the codes that these slots hold."""
        return self._multisets.read(slots)[1]

    def keep_slots(self, kept: Array, interned: Interned | None = None) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on; ids have new numbers."""
        if interned is None:
            self._multisets.keep_slots(kept)
        else:
            self._multisets.keep_slots(kept, interned.number_of, interned.strings)

    def arguments(self, deltas: Deltas, column: Column, *, across_instants: bool) -> tuple[Any, ...]:
        """Make the state ready for these deltas; return the arguments that kernels begin with.

        Across instants a slot's changes and cells stand together; otherwise the cells stay in order.
        """
        n, n_cells = deltas.count, deltas.cells
        take = self._scratch.take
        groups = take("groups", GROUP_SIZE * (n + n_cells), np.int32)
        groups_of = take("group of delta", n, np.int32), take("group of cell", n_cells, np.int32)
        changes, cells = take("changes", CHANGE_SIZE * n, np.int64), take("cells", CELL_SIZE * n_cells, np.int32)
        count = arrange(
            *delta_arguments(deltas), *map(read_only, column), across_instants, self._group_of, groups, *groups_of,
            changes, cells,
        )  # fmt: skip
        changes = changes[: CHANGE_SIZE * count]
        if self._interned is not None:
            released = np.empty(count, np.int64)
            n_released = kernels.count_references(changes, self._interned.references, released)
            self._interned.note(released[:n_released])
            self._multisets.set_bytes(*self._interned.strings)
        self._multisets.reserve(count)
        return changes, cells, self._multisets.state

    def save(self) -> OperatorState:
        return dict(self._multisets.save())

    def load(self, state: OperatorState) -> None:
        self._multisets.load(state)


def absent_value(call: object, changes: Array, row: int) -> InternalError:
    return InternalError(f"{call}: slot {changes[CHANGE_SIZE * row] >> 1} loses a row that it does not hold")


class Ordered:
    """The codes alive in each slot, in order, and the positions that calls read of them."""

    def __init__(self, interned: Interned | None, *, endless: bool) -> None:
        self._interned = interned
        self._endless = endless
        self._kinds: list[int] = []
        self._shares: list[float] = []
        self._multisets = CodeMultisets(interned)
        self._counts, self._lows, self._highs = (np.zeros(16, np.int64) for _ in range(3))
        self._scratch = Scratch()
        self._cells = np.empty(0, np.int64)
        self.sizes = np.empty(0, np.int64)
        self.valid = np.empty(0, np.uint8)
        if interned is not None:
            interned.holders.append(self)

    def ask(self, kind: int, share: float = 0.0) -> int:
        """Return the number under which `codes` gives what is at this position."""
        wanted = (kind, share)
        asked = list(zip(self._kinds, self._shares, strict=True))
        if wanted in asked:
            return asked.index(wanted)
        self._kinds.append(kind)
        self._shares.append(share)
        return len(asked)

    @property
    def _is_running(self) -> bool:
        return self._endless and all(kind in (kernels.SMALLEST, kernels.LARGEST) for kind in self._kinds)

    def ensure_slots(self, capacity: int) -> None:
        if self._is_running:
            self._counts, self._lows, self._highs = (
                grown(array, capacity) for array in (self._counts, self._lows, self._highs)
            )
        else:
            self._multisets.ensure_slots(capacity)

    def held(self, slots: Array) -> Array:
        """Return the codes that these slots hold, each as often as it is counted."""
        if not self._is_running:
            return self._multisets.held(slots)
        slots = slots[self._counts[slots] > 0]
        return np.concatenate([self._lows[slots], self._highs[slots]])

    def keep_slots(self, kept: Array, interned: Interned | None = None) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on; ids have new numbers."""
        if not self._is_running:
            self._multisets.keep_slots(kept, interned)
            return
        self._counts, self._lows, self._highs = (
            at_slots(array, kept) for array in (self._counts, self._lows, self._highs)
        )
        if interned is not None:
            has_any = self._counts > 0
            for codes in (self._lows, self._highs):
                codes[has_any] = interned.number_of[codes[has_any]]

    def run(self, deltas: Deltas, column: Column, call: BoundAggregate) -> None:
        """Apply the deltas; leave the asked codes, how many values each finished cell has, and whether any."""
        self._cells = self._scratch.take("cells", deltas.cells * (1 + len(self._kinds)), np.int64)
        if self._is_running:
            self._run_extremes(deltas, column)
        else:
            self._run_multisets(deltas, column, call)
        self.sizes = self._column(0)
        self.valid = (self.sizes > 0).view(np.uint8)

    def _run_extremes(self, deltas: Deltas, column: Column) -> None:
        references, released, text = NOBODY, NOBODY, None
        if self._interned is not None:
            references, text = self._interned.references, self._interned.strings
            released = np.empty(2 * deltas.count, np.int64)
        count = kernels.fold_running(
            *delta_arguments(deltas), *map(read_only, column), text, self._counts, self._lows, self._highs,
            references, released, np.array(self._kinds), self._cells,
        )  # fmt: skip
        if self._interned is not None:
            self._interned.note(released[:count])

    def _run_multisets(self, deltas: Deltas, column: Column, call: BoundAggregate) -> None:
        arguments = self._multisets.arguments(deltas, column, across_instants=True)
        bad = kernels.fold_positions(*arguments, np.array(self._kinds), np.array(self._shares), self._cells)
        if bad >= 0:
            raise absent_value(call, arguments[0], bad)

    def codes(self, row: int) -> Array:
        """The codes at the position to which `ask` gave this number, one for each finished cell."""
        return self._column(1 + row)

    def _column(self, k: int) -> Array:
        return self._cells[k :: 1 + len(self._kinds)].copy()  # the buffer is written again

    def save(self) -> OperatorState:
        if self._is_running:
            return {"counts": self._counts, "lows": self._lows, "highs": self._highs}
        return self._multisets.save()

    def load(self, state: OperatorState) -> None:
        if self._is_running:
            self._counts, self._lows, self._highs = (owned(state[name]) for name in ("counts", "lows", "highs"))
        else:
            self._multisets.load(state)


class RankFold(Fold):
    """min(x), max(x), percentile(x)."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        key = ("values in order", self.inputs[0].serialised)
        self._owns = key not in context.shared
        if self._owns:
            codes = codes_for(call.inputs[0].dtype)
            endless = context.properties.endless and context.properties.ends_known
            context.shared[key] = (codes, Ordered(codes.interned, endless=endless))
            self.columns = (np.dtype(np.int64),)
        else:
            self.inputs = ()
        self._codes: Codes = context.shared[key][0]
        self._order: Ordered = context.shared[key][1]
        self._interpolates = call.kind == "percentile" and not call.option("discrete")
        self._rows = [self._order.ask(kind, share) for kind, share in _positions(call)]

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        return [self._codes.encode(inputs[0])] if self._owns else []

    def ensure_slots(self, capacity: int) -> None:
        if self._owns:
            self._order.ensure_slots(capacity)

    def keep_slots(self, kept: Array) -> Array | None:
        if not self._owns:
            return None
        number_of = self._codes.keep_slots(kept)
        if number_of is None:
            self._order.keep_slots(kept)
        return number_of

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        if self._owns:
            self._order.run(deltas, columns[0], self.call)
        valid = self._order.valid
        values = [self._codes.decode(self.call.placeholder, self._order.codes(row), valid) for row in self._rows]
        return self._between(values, valid) if self._interpolates else values[0]

    def _between(self, values: Sequence[pl.Series], valid: Array) -> pl.Series:
        low, high = (
            as_float64(series.cast(pl.Float64) if isinstance(series.dtype, pl.Decimal) else series)[0]
            for series in values
        )
        out = np.empty(len(low))
        kernels.interpolate(low, high, self._order.sizes, self.call.option("p"), out)
        return series_from(self.call.placeholder, out, None if valid.all() else valid, pl.Float64())

    def settle(self) -> None:
        if self._owns:
            self._codes.settle()

    def save(self) -> OperatorState:
        return {"codes": self._codes.save(), "order": self._order.save()} if self._owns else {}

    def load(self, state: OperatorState) -> None:
        if self._owns:
            self._codes.load(state["codes"])
            self._order.load(state["order"])


def _positions(call: BoundAggregate) -> list[tuple[int, float]]:
    """Return the positions that a call reads: one, or two to interpolate between."""
    if call.kind != "percentile":
        return [(kernels.SMALLEST if call.kind == "min" else kernels.LARGEST, 0.0)]
    share = call.option("p")
    if call.has_option("neighbour"):  # of the two that percentiles are interpolated between
        return [(kernels.BELOW if call.option("neighbour") == "below" else kernels.ABOVE, share)]
    if call.option("discrete"):
        return [(kernels.DISCRETE, share)]
    return [(kernels.BELOW, share), (kernels.ABOVE, share)]


@register_fold("min", "max", "percentile")
def rank_fold(call: BoundAggregate, context: FoldContext) -> Fold:
    return (NullFold if isinstance(call.inputs[0].dtype, pl.Null) else RankFold)(call, context)


# -- rows in the order of the rule --------------------------------------------------------------------------


def rows_in_order(fold: Fold) -> tuple[RowCodes, bool]:
    """Return the codes of rows by start, `order_by`, then the payload, and whether `fold` is to make them.

    Equal codes must have equal values. An input that depends on the end of the event is no function of
    start and payload, so it is made part of the order, after everything else.
    """
    trailing = tuple(item.serialised for item in fold.inputs if item.uses_end)
    key = ("rows in order", tuple(item.serialised for item in fold.call.order_by), trailing)
    owns = key not in fold.context.shared
    if owns:
        fold.context.shared[key] = RowCodes(fold.context.payload.names)
        fold.inputs = (*fold.inputs, *fold.call.order_by)
    codes: RowCodes = fold.context.shared[key]
    return codes, owns


def take_rows(fold: Fold, codes: RowCodes, inputs: Sequence[pl.Series], batch: Batch) -> None:
    """Make the codes of a batch; `inputs` are the fold's own and the `order_by` after them."""
    own = len(inputs) - len(fold.call.order_by)
    trailing = [series for series, item in zip(inputs[:own], fold.inputs, strict=False) if item.uses_end]
    start = pl.Series(row_starts(batch, fold.context.time))
    codes.take(batch, [start, *inputs[own:]], trailing=trailing)


def kept_rows(codes: RowCodes, kept: Array, *, owns: bool) -> Array:
    """Forget the rows of all but these slots; return the codes' new numbers, which the owner, first of all, gives."""
    if owns:
        codes.keep_slots(kept)
    return codes.number_of


class ArrivalFold(Fold):
    """first(x), last(x): by start, then `order_by`, then the payload; nulls are skipped."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        text = self.inputs[0].serialised
        self._codes, self._owns_codes = rows_in_order(self)
        key = ("rows of", id(self._codes), text)
        self._owns = key not in context.shared
        if self._owns:
            endless = context.properties.endless and context.properties.ends_known
            order = Ordered(self._codes.interned, endless=endless)
            context.shared[key] = (order, self._codes.column(call.inputs[0].dtype))
            self.columns = (np.dtype(np.int64),)
        else:
            self.inputs = ()
        self._order: Ordered = context.shared[key][0]
        self._values = context.shared[key][1]
        self._row = self._order.ask(kernels.SMALLEST if call.kind == "first" else kernels.LARGEST)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        if not self._owns:
            return []
        if self._owns_codes:
            take_rows(self, self._codes, inputs, batch)
        self._codes.add(self._values, inputs[0])
        return [(self._codes.codes, valid_of(inputs[0]))]

    def ensure_slots(self, capacity: int) -> None:
        if self._owns:
            self._order.ensure_slots(capacity)

    def keep_slots(self, kept: Array) -> Array | None:
        return kept_rows(self._codes, kept, owns=self._owns_codes)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        if self._owns:
            self._order.run(deltas, columns[0], self.call)
        codes = self._order.codes(self._row)
        return self._codes.gather(self._values, codes, self._order.valid, self.call.placeholder)

    def settle(self) -> None:
        if self._owns_codes:
            self._codes.settle()

    def save(self) -> OperatorState:
        return {
            "codes": self._codes.save() if self._owns_codes else None,
            "order": self._order.save() if self._owns else None,
        }

    def load(self, state: OperatorState) -> None:
        if self._owns_codes:
            self._codes.load(state["codes"])
        if self._owns:
            self._order.load(state["order"])


register_fold("first", "last")(ArrivalFold)
