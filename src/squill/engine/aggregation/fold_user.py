"""Folds: sq.aggregate_fn.

=================  ==============================================  =============================
functions          with `deaccumulate`                             without
=================  ==============================================  =============================
Numba compiles     `ChangeFold`: a loop over the deltas            `ListFold`: the live rows in order
plain Python       `PythonChangeFold`                              `PythonListFold`
=================  ==============================================  =============================

An aggregate with `merge` may be split: the fold of a shard gives its states in place of results, one field for each
element, and the fold over what the shards found (`user_merge`) adds these states up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import polars as pl

from squill.engine.aggregation.fold_lists import RowLists
from squill.engine.aggregation.fold_ranks import CodeMultisets, kept_rows, rows_in_order, take_rows
from squill.engine.aggregation.fold_sums import delta_arguments
from squill.engine.aggregation.folds import Array, Fold, FoldContext, register_fold
from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.buffers import room_for
from squill.engine.columns import read_only, series_from, valid_of, values_and_valid_of, values_of
from squill.engine.kernels import fold_user as kernels
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.row_starts import row_starts
from squill.errors import PlanError, UserFunctionError
from squill.plan.aggregates import BoundAggregate, UserAggregate
from squill.wording import shortened

__all__ = ["ChangeFold", "ListFold", "PythonChangeFold", "PythonListFold"]

NUMBERS = {
    pl.Boolean: np.dtype(np.bool_), pl.UInt64: np.dtype(np.uint64),
    pl.Float16: np.dtype(np.float64), pl.Float32: np.dtype(np.float64), pl.Float64: np.dtype(np.float64),
    pl.Int8: np.dtype(np.int64), pl.Int16: np.dtype(np.int64), pl.Int32: np.dtype(np.int64),
    pl.Int64: np.dtype(np.int64), pl.UInt8: np.dtype(np.int64), pl.UInt16: np.dtype(np.int64),
    pl.UInt32: np.dtype(np.int64),
}  # fmt: skip
"""The types that functions are compiled for, and what they are passed as."""

STATES: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64),
}  # fmt: skip


NO_FLAGS = read_only(np.empty(0, np.uint8))
_NO_DELTAS = (
    np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int64), 0, np.empty(0, np.int64),
    np.empty(0, np.int64), 0, np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), 0,
)  # fmt: skip


def functions_of(call: BoundAggregate) -> UserAggregate:
    assert call.user is not None
    return call.user


def _state_of_none(call: BoundAggregate) -> Any:
    """Return what `init` gives, the state before any event."""
    try:
        return functions_of(call).init()
    except Exception as error:
        raise UserFunctionError(
            f"aggregate {call}: init() failed: {type(error).__name__}: {error}",
            "it takes nothing and returns the state of no events: init=lambda: (0, 0.0).",
        ) from error


def _gives_states(call: BoundAggregate) -> bool:
    return call.kind == "user_states"


def _elements(call: BoundAggregate) -> list[pl.DataType]:
    """Return the types of the elements of the states that the call gives."""
    assert isinstance(call.dtype, pl.Struct)
    return list(pl.Schema(call.dtype.to_schema()).values())


def _looped_functions(call: BoundAggregate) -> dict[str, Callable[..., Any]]:
    """Return the functions that the loop of this call uses: shards give states, which are merged to a result."""
    user = functions_of(call)
    named: dict[str, Callable[..., Any] | None] = {"accumulate": user.accumulate, "deaccumulate": user.deaccumulate}
    if call.kind == "user_merge":
        named = {"merge": user.merge}
    if not _gives_states(call):
        named["result"] = user.result
    return {name: function for name, function in named.items() if function is not None}


def failed(fold: Fold, error: Exception, t: int, values: Sequence[object]) -> NoReturn:
    time = fold.context.time
    start = "" if time is None else f"start {time.show(int(t))} and "
    shown = ", ".join(f"{item.name}={value!r}" for item, value in zip(fold.call.inputs, values, strict=True))
    raise UserFunctionError(
        f"aggregate {fold.call}: a function failed at the event with {start}{shown}: {type(error).__name__}: {error}",
        "the functions must take every event that has no null input.",
    ) from error


def failed_result(fold: Fold, error: Exception, t: int) -> NoReturn:
    raise UserFunctionError(
        f"aggregate {fold.call}: result(state) failed{fold.at(t)}: {type(error).__name__}: {error}",
        "it is asked for whenever an event is alive, also when all inputs are null and the state is init().",
    ) from error


def no_nulls(inputs: Sequence[pl.Series], size: int) -> Array:
    valid = np.ones(size, np.uint8)
    for series in inputs:
        valid &= valid_of(series)
    return valid


def _numbers(series: pl.Series, kind: np.dtype[Any]) -> Array:
    values = values_and_valid_of(series)[0]
    return values.view(np.bool_) if kind == np.bool_ else values.astype(kind, copy=False)


class Compiled:
    """The functions of a call as one loop, and what they need."""

    def __init__(self, call: BoundAggregate) -> None:
        initial = _state_of_none(call)
        if not isinstance(initial, tuple) or not initial or not all(type(item) in STATES for item in initial):
            raise kernels.NotCompilableError(f"init() gives {shortened(initial)}, not a tuple of numbers")
        if any(type(item) is int and not -(2**63) <= item < 2**63 for item in initial):
            raise kernels.NotCompilableError(f"init() gives {shortened(initial)}, which 64 bits do not hold")
        for item in call.inputs:
            if type(item.dtype) not in NUMBERS:
                raise kernels.NotCompilableError(f"the input {item.name!r} is {item.dtype}, not a number")
        self.call = call
        self.inputs = [NUMBERS[type(item.dtype)] for item in call.inputs]
        self.initial = [np.array(item, STATES[type(item)])[()] for item in initial]
        self.outs = [value.dtype for value in self.initial] if _gives_states(call) else [_output_type(call.dtype)]
        self.loop = kernels.compile_loop(_looped_functions(call), self.inputs, initial)

    def outputs(self, cells: int) -> list[Array]:
        """Return room for the values of cells, in one array or in one for each element, and whether there is one."""
        return [*(np.zeros(cells, kind) for kind in self.outs), np.empty(cells, np.uint8)]

    def states(self, size: int) -> list[Array]:
        return [np.full(size, value) for value in self.initial]

    def compile(self, *arguments: Any) -> None:
        try:
            kernels.compile_now(self.loop, arguments)
        except kernels.StateTypeError as error:
            raise _mismatch(self.call, error.element) from error

    def finish(self, outputs: Sequence[Array]) -> pl.Series:
        *values, valid = outputs
        name, dtype = self.call.placeholder, self.call.dtype
        if _gives_states(self.call):
            parts = zip(values, _elements(self.call), strict=True)
            columns = [series_from(str(k), array, None, kind) for k, (array, kind) in enumerate(parts)]
            return pl.DataFrame(columns).to_struct(name)
        return series_from(name, values[0], None if valid.all() else valid, dtype)


def _mismatch(call: BoundAggregate, element: int) -> PlanError:
    if element < 0:
        return PlanError(
            f"aggregate {call}: result(state) returns a float, but dtype is {call.dtype}",
            "give dtype=pl.Float64, or return int(…).",
        )
    return PlanError(
        f"aggregate {call}: init() makes element {element} of the state an integer, "
        "but the functions return a float for it",
        "write 0.0 instead of 0 in init().",
    )


def _output_type(dtype: pl.DataType) -> np.dtype[Any]:
    if dtype.is_temporal():
        return np.dtype(np.int64)
    kind = NUMBERS.get(type(dtype))
    if kind is None:
        raise kernels.NotCompilableError(f"dtype is {dtype}, not a number")
    return kind


class ChangeFold(Fold):
    """Compiled functions with `deaccumulate`: one array of states per element."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self._user = Compiled(call)
        self.columns = (np.dtype(np.int64), *self._user.inputs)
        self._states = self._user.states(16)
        nothing = Deltas(*_NO_DELTAS, [(np.empty(0, kind), NO_FLAGS) for kind in self.columns])
        self._user.compile(*self._arguments(nothing, nothing.columns, np.zeros(2, np.int64), *self._user.outputs(0)))

    def _arguments(self, deltas: Deltas, columns: Sequence[Column], at: Array, *out: Array) -> tuple[Any, ...]:
        times, valid = columns[0]
        inputs = [read_only(values) for values, _ in columns[1:]] or [NO_FLAGS]
        return (
            *delta_arguments(deltas), read_only(times), read_only(valid), *inputs,
            *self._states, *self._user.initial, at, *out,
        )  # fmt: skip

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        valid = no_nulls(inputs, len(batch))
        numbers = [_numbers(series, kind) for series, kind in zip(inputs, self._user.inputs, strict=True)]
        return [(row_starts(batch, self.context.time), valid), *((values, valid) for values in numbers)]

    def ensure_slots(self, capacity: int) -> None:
        held = len(self._states[0])
        if capacity > held:
            larger = self._user.states(room_for(capacity))
            for new, old in zip(larger, self._states, strict=True):
                new[:held] = old
            self._states = larger

    def keep_slots(self, kept: Array) -> Array | None:
        self._states = [array[kept] for array in self._states]
        self.ensure_slots(16)
        return None

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        at = np.full(2, -1)
        outputs = self._user.outputs(deltas.cells)
        try:
            self._user.loop(*self._arguments(deltas, columns, at, *outputs))
        except Exception as error:  # noqa: BLE001 (whatever a user's function raises)
            row, cell = at
            if row < 0:
                failed_result(self, error, deltas.cell_time[cell])
            failed(self, error, columns[0][0][row], [values[row].item() for values, _ in columns[1:]])
        return self._user.finish(outputs)

    def save(self) -> OperatorState:
        return {"states": list(self._states)}

    def load(self, state: OperatorState) -> None:
        self._states = [owned(array) for array in state["states"]]


class RowFold(Fold):
    """Base of the folds that look rows up by code: start and inputs are kept with each code."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        kinds = [item.dtype for item in self.inputs]
        self._codes, self._owns_codes = rows_in_order(self)
        self._times = self._codes.column(pl.Int64())
        self._values = [self._codes.column(dtype) for dtype in kinds]
        self.columns = (np.dtype(np.int64),)

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        if self._owns_codes:
            take_rows(self, self._codes, inputs, batch)
        own = inputs[: len(self._values)]
        self._codes.add(self._times, pl.Series(row_starts(batch, self.context.time)))
        for column, series in zip(self._values, own, strict=True):
            self._codes.add(column, series)
        return [(self._codes.codes, no_nulls(own, len(batch)))]

    def rows(self, codes: Array) -> tuple[pl.Series, list[pl.Series]]:
        """Return the starts and the inputs of the rows with these codes."""
        return self._codes.gather(self._times, codes), [self._codes.gather(column, codes) for column in self._values]

    def keep_slots(self, kept: Array) -> Array | None:
        return kept_rows(self._codes, kept, owns=self._owns_codes)

    def settle(self) -> None:
        if self._owns_codes:
            self._codes.settle()

    def save(self) -> OperatorState:
        return {"codes": self._codes.save() if self._owns_codes else None}

    def load(self, state: OperatorState) -> None:
        if self._owns_codes:
            self._codes.load(state["codes"])


class LiveRowsFold(RowFold):
    """Without `deaccumulate`: the live rows of each cell, in the order of the rule."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self._lists = RowLists(self._codes.interned)

    def ensure_slots(self, capacity: int) -> None:
        self._lists.ensure_slots(capacity)

    def pieces(self, deltas: Deltas, column: Column) -> Iterator[tuple[int, Array, pl.Series, list[pl.Series]]]:
        """Yield (first cell, offsets, starts, inputs) for all finished cells."""
        for first, offsets, codes in self._lists.run(deltas, column, self.call, self._codes.prefixes):
            yield first, offsets, *self.rows(codes)

    def save(self) -> OperatorState:
        return {**super().save(), "lists": self._lists.save()}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._lists.load(state["lists"])


class ListFold(LiveRowsFold):
    """Compiled functions without `deaccumulate`."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        self._user = Compiled(call)
        self._compile()
        super().__init__(call, context)

    def _arguments(self, offsets: Array, alive: Array, times: Array, inputs: Sequence[Array], *out: Array) -> list[Any]:
        frozen = [read_only(values) for values in (offsets, alive, times, *inputs)]
        return [*frozen, *([] if inputs else [NO_FLAGS]), *self._user.states(1), *self._user.initial, *out]

    def _compile(self) -> None:
        inputs = [np.empty(0, kind) for kind in self._user.inputs]
        words, at = np.zeros(1, np.int64), np.zeros(2, np.int64)
        self._user.compile(*self._arguments(words, words, words, inputs, at, *self._user.outputs(0)))

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        outputs = self._user.outputs(deltas.cells)
        for first, offsets, starts, inputs in self.pieces(deltas, columns[0]):
            stop, at, times = first + len(offsets) - 1, np.full(2, -1), values_of(starts)
            numbers = [_numbers(series, kind) for series, kind in zip(inputs, self._user.inputs, strict=True)]
            alive, answers = deltas.cell_alive[first:stop], [array[first:stop] for array in outputs]
            try:
                self._user.loop(*self._arguments(offsets, alive, times, numbers, at, *answers))
            except Exception as error:  # noqa: BLE001 (whatever a user's function raises)
                row, cell = at
                if row < 0:
                    failed_result(self, error, deltas.cell_time[first + cell])
                failed(self, error, times[row], [values[row].item() for values in numbers])
        return self._user.finish(outputs)


def _python_series(call: BoundAggregate, values: Sequence[Any]) -> pl.Series:
    try:
        if _gives_states(call):
            columns = [
                pl.Series(str(k), [None if state is None else state[k] for state in values], dtype)
                for k, dtype in enumerate(_elements(call))
            ]
            return pl.DataFrame(columns).to_struct(call.placeholder)
        return pl.Series(call.placeholder, values, call.dtype)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise UserFunctionError(
            f"aggregate {call}: result(state) returned a value that is not {call.dtype}: {error}",
            "give the dtype of what result returns.",
        ) from error


class PythonListFold(LiveRowsFold):
    """Plain Python functions without `deaccumulate`."""

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        values: list[object] = []
        for first, offsets, starts, inputs in self.pieces(deltas, columns[0]):
            rows = list(zip(starts.to_list(), *(series.to_list() for series in inputs), strict=True))
            for cell in range(len(offsets) - 1):
                is_alive = deltas.cell_alive[first + cell] > 0
                alive = rows[offsets[cell] : offsets[cell + 1]]
                values.append(self._value(alive, deltas.cell_time[first + cell]) if is_alive else None)
        return _python_series(self.call, values)

    def _value(self, rows: Sequence[tuple[Any, ...]], t: int) -> object:
        user = functions_of(self.call)
        state = _state_of_none(self.call)
        for row in rows:
            state = called(self, user.accumulate, state, row)
        return result_of(self, state, t)


class PythonMergeFold(PythonListFold):
    """Plain Python functions over states."""

    def _value(self, rows: Sequence[tuple[Any, ...]], t: int) -> object:
        user = functions_of(self.call)
        assert user.merge is not None
        state = _state_of_none(self.call)
        for t_of_row, *elements in rows:
            try:
                state = user.merge(state, tuple(elements))
            except Exception as error:  # noqa: BLE001 (whatever a user's function raises)
                failed(self, error, t_of_row, elements)
        return result_of(self, state, t)


def called(fold: Fold, function: Callable[..., Any], state: Any, row: tuple[Any, ...]) -> Any:
    try:
        return function(state, *row)
    except Exception as error:  # noqa: BLE001 (whatever a user's function raises)
        failed(fold, error, row[0], row[1:])


def result_of(fold: Fold, state: Any, t: int) -> object:
    if _gives_states(fold.call):
        return _checked_state(fold.call, state)
    try:
        return functions_of(fold.call).result(state)
    except Exception as error:  # noqa: BLE001 (whatever a user's function raises)
        failed_result(fold, error, t)


def _checked_state(call: BoundAggregate, state: Any) -> tuple[Any, ...]:
    """Return the state, whose elements must be of the types that `init` gave them, as they are when compiled."""
    for element, (value, dtype) in enumerate(zip(state, _elements(call), strict=True)):
        if isinstance(value, float) and not dtype.is_float():
            raise _mismatch(call, element)
    return tuple(state)


class PythonChangeFold(RowFold):
    """Plain Python functions with `deaccumulate`: a state per slot."""

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        super().__init__(call, context)
        self._states: dict[int, Any] = {}
        self._alive = CodeMultisets(self._codes.interned)
        self._codes.interned.holders.append(self._alive)

    def ensure_slots(self, capacity: int) -> None:
        self._alive.ensure_slots(capacity)

    def keep_slots(self, kept: Array) -> Array | None:
        self._states = {i: self._states[slot] for i, slot in enumerate(kept.tolist()) if slot in self._states}
        return super().keep_slots(kept)

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        self._alive.apply(deltas, columns[0], self.call)
        codes, valid = columns[0]
        taken = deltas.row[: deltas.count]
        counts = valid[taken].astype(np.bool_)
        codes, signs = codes[taken], deltas.sign[: deltas.count]
        starts, inputs = self.rows(codes * counts)
        rows = list(zip(starts.to_list(), *(series.to_list() for series in inputs), strict=True))
        values: list[object] = []
        d = 0
        for i in range(deltas.instants + 1):
            stop = int(deltas.instant_delta[i]) if i < deltas.instants else deltas.count
            for d in range(d, stop):  # noqa: B020 (goes on where it was)
                if counts[d]:
                    self._change(int(deltas.slot[d]), signs[d] > 0, rows[d])
            d = stop
            if i < deltas.instants:
                values += [self._value(deltas, c) for c in range(len(values), int(deltas.instant_cell[i]))]
        return _python_series(self.call, values)

    def _change(self, slot: int, comes: Any, row: tuple[Any, ...]) -> None:
        user = functions_of(self.call)
        assert user.deaccumulate is not None
        state = self._states[slot] if slot in self._states else _state_of_none(self.call)
        self._states[slot] = called(self, user.accumulate if comes else user.deaccumulate, state, row)

    def _value(self, deltas: Deltas, cell: int) -> object:
        slot = int(deltas.cell_slot[cell])
        if deltas.cell_alive[cell] == 0:
            self._states.pop(slot, None)
            return None
        state = self._states[slot] if slot in self._states else _state_of_none(self.call)
        return result_of(self, state, deltas.cell_time[cell])

    def save(self) -> OperatorState:
        return {**super().save(), "states": dict(self._states), "alive": self._alive.save()}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        self._states = dict(state["states"])
        self._alive.load(state["alive"])


@register_fold("user", "user_states", "user_merge")
def user_fold(call: BoundAggregate, context: FoldContext) -> Fold:
    changes = "deaccumulate" in _looped_functions(call)
    try:
        return (ChangeFold if changes else ListFold)(call, context)
    except kernels.NotCompilableError as error:
        warnings.warn(f"aggregate {call} runs as plain Python, which is slow: {error}", UserWarning, stacklevel=2)
        if call.kind == "user_merge":
            return PythonMergeFold(call, context)
        return (PythonChangeFold if changes else PythonListFold)(call, context)
