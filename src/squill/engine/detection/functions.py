"""The functions of a pattern as hooks of the loop, and the arrays that they read and write.

The text of the hooks has one branch per element with functions. `computed` is (at, then values and validity of
each input column, of each register, and of each register's output); `at[0]` is the row that a function is called for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aggregation.fold_user import NUMBERS
from squill.engine.columns import read_only, series_from, valid_of, values_and_valid_of
from squill.engine.kernels import detect as kernels
from squill.engine.kernels.fold_user import NotCompilableError, StateTypeError, compile_now
from squill.engine.owned import owned
from squill.errors import PlanError, UserFunctionError
from squill.plan.expressions import Expression
from squill.plan.nodes import Detect
from squill.plan.nodes.patterns import COLUMN, REGISTER, FunctionCall, Register

__all__ = ["Functions"]

Array = npt.NDArray[Any]


class Functions:
    """`registers` are those that a function reads or writes, `inputs` the columns that functions read."""

    def __init__(self, node: Detect) -> None:
        self.calls = [
            call
            for element in node.elements
            for call in (*element.tests, *(update for _, update in element.updates))
            if isinstance(call, FunctionCall)
        ]
        touched = {name for call in self.calls for kind, name in call.arguments if kind == REGISTER}
        touched |= {name for item in node.elements for name, update in item.updates if isinstance(update, FunctionCall)}
        self._node = node
        self.registers = [register for register in node.registers if register.name in touched]
        columns = {name for call in self.calls for kind, name in call.arguments if kind == COLUMN}
        self.inputs = [name for name in node.parent.schema if name in columns]
        # Expressions that set a computed register are read as columns, beside the functions' own.
        self.assigned = list(
            dict.fromkeys(
                update
                for item in node.elements
                for name, update in item.updates
                if name in touched and isinstance(update, Expression)
            )
        )
        self.is_compiled = True
        self.loop: Callable[..., Any] = kernels.detect if not self.calls else self._compiled()

    # -- the loop ---------------------------------------------------------------------------------------------

    def _named(self) -> dict[str, Callable[..., Any]]:
        return {f"u{number}": call.function for number, call in enumerate(self.calls)}

    def _compiled(self) -> Callable[..., Any]:
        hooks = _Hooks(self, self._node).text
        try:
            for name in self.inputs:
                _number(f"column {name!r}", self._node.parent.schema[name])
            for register in self.registers:
                _number(f"register {register.name!r}", register.dtype)
            loop = kernels.loop_with(hooks, self._named())
            compile_now(loop, self._nothing())
        except StateTypeError as error:
            register = self.registers[error.element]
            raise PlanError(
                f"detect: the register {register.name!r} is {register.dtype}, but a function returns a float for it",
                f"write .with_registers({register.name}=0.0).",
            ) from error
        except NotCompilableError as error:
            text = f"detect: the functions of the pattern run as plain Python, which is slow: {error}"
            warnings.warn(text, UserWarning, stacklevel=2)
            self.is_compiled = False
            return kernels.plain_loop_with(hooks, self._named())
        return loop

    def _nothing(self) -> tuple[Any, ...]:
        """Return arguments of the types that the loop will have, and no rows."""
        times, slots, flags = np.empty(0, np.int64), np.empty(0, np.int32), np.empty((1, 0), np.uint8)
        tables = tuple(read_only(np.zeros(2, np.int64)) for _ in range(8))
        schema = {name: self._node.parent.schema[name] for name in self.inputs}
        schema |= {f"={number}": item.dtype for number, item in enumerate(self.assigned)}
        columns = {name: pl.Series(name, [], dtype) for name, dtype in schema.items()}
        computed = (np.zeros(1, np.int64), *self.values(columns), *self.blank(1), *self.outputs(1))
        return (
            read_only(times), read_only(slots), times, np.empty(0, np.uint8), flags, 0, 1, 0, True, tables,
            np.zeros(kernels.STATE_SIZE, np.int64), np.zeros((1, kernels.SLOT_SIZE), np.int64), times, times, times,
            np.empty((1, 0), np.int64), times, times, times, slots, np.empty((1, 0), np.int64), times, slots, computed,
        )  # fmt: skip

    # -- arrays -----------------------------------------------------------------------------------------------

    def values(self, columns: dict[str, pl.Series]) -> list[Array]:
        """Return values and validity of the inputs, then of the expressions that set computed registers."""
        arrays: list[Array] = []
        for name in [*self.inputs, *(f"={number}" for number in range(len(self.assigned)))]:
            series = columns[name]
            if self.is_compiled:
                values, valid = values_and_valid_of(series)
                kind = NUMBERS[type(series.dtype)]
                # Read back as booleans, so that functions get what they would get in Python.
                arrays += [read_only(values.view(np.bool_) if kind == np.bool_ else values.astype(kind, copy=False))]
                arrays += [read_only(valid)]
            else:
                arrays += [_objects(series.to_list()), valid_of(series)]
        return arrays

    def blank(self, size: int) -> list[Array]:
        """Return arrays of registers with their first values."""
        arrays: list[Array] = []
        for register in self.registers:
            arrays += [self._filled(register, size), np.full(size, register.initial is not None, np.uint8)]
        return arrays

    def _filled(self, register: Register, size: int) -> Array:
        if not self.is_compiled:
            return _objects([register.initial] * size)
        return np.full(size, 0 if register.initial is None else register.initial, NUMBERS[type(register.dtype)])

    def outputs(self, size: int) -> list[Array]:
        arrays: list[Array] = []
        for register in self.registers:
            kind = NUMBERS[type(register.dtype)] if self.is_compiled else np.dtype(object)
            arrays += [np.empty(size, kind), np.empty(size, np.uint8)]
        return arrays

    def series(self, number: int, arrays: Sequence[Array], size: int) -> pl.Series:
        """Return a register's output rows."""
        register = self.registers[number]
        values, valid = arrays[2 * number][:size], arrays[2 * number + 1][:size]
        if self.is_compiled:
            return series_from(register.name, values.copy(), None if valid.all() else valid, register.dtype)
        listed = [value if is_there else None for value, is_there in zip(values.tolist(), valid, strict=True)]
        try:
            return pl.Series(register.name, listed, register.dtype, strict=True)
        except (TypeError, pl.exceptions.PolarsError, OverflowError) as error:
            raise UserFunctionError(
                f"detect: a function's value for the register {register.name!r} is not {register.dtype}: {error}",
                "return a value of the type of its first value, or None.",
            ) from error

    def saved(self, arrays: Sequence[Array]) -> list[Array | pl.Series]:
        """Return arrays of registers as they can be saved: Python's objects as columns of the registers' types."""
        if self.is_compiled:
            return list(arrays)
        size = len(arrays[0]) if arrays else 0
        columns = [self.series(number, arrays, size) for number in range(len(self.registers))]
        return [item for number, column in enumerate(columns) for item in (column, arrays[2 * number + 1])]

    def loaded(self, saved: Sequence[Any]) -> list[Array]:
        """Return the arrays of registers that `saved` was given."""
        return [_objects(item.to_list()) if isinstance(item, pl.Series) else owned(item) for item in saved]


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _number(what: str, dtype: pl.DataType) -> None:
    if type(dtype) not in NUMBERS:
        raise NotCompilableError(f"the {what} is {dtype}, not a number")


class _Hooks:
    """The text of `holds`, `update` and `write` for one pattern."""

    def __init__(self, functions: Functions, node: Detect) -> None:
        self._columns = {name: 1 + 2 * number for number, name in enumerate(functions.inputs)}
        places = len(functions.inputs)
        self._assigned = {item: 1 + 2 * (places + number) for number, item in enumerate(functions.assigned)}
        places += len(functions.assigned)
        names = [register.name for register in functions.registers]
        self._registers = {name: 1 + 2 * (places + number) for number, name in enumerate(names)}
        places += len(names)
        self._outputs = {name: 1 + 2 * (places + number) for number, name in enumerate(names)}
        self._numbers = {name: number for number, name in enumerate(names)}
        self._next_call = 0
        holds, update = [], []
        for p, element in enumerate(node.elements, 1):
            tests = [line for test in element.tests for line in self._test(test)]
            updates = [line for name, item in element.updates for line in self._update(name, item)]
            holds += self._branch(p, tests)
            update += self._branch(p, updates)
        self.text = "\n".join(
            [
                *self._function("holds(p, row, a, t, computed)", [*holds, "return True"]),
                *self._function("update(p, row, a, b, t, computed)", [*self._copies(), *update]),
                *self._function("write(b, out, computed)", self._writes()),
            ]
        )

    def _function(self, head: str, body: list[str]) -> list[str]:
        return ["@inlined", f"def {head}:", *(f"    {line}" for line in body or ["pass"])]

    def _branch(self, p: int, lines: list[str]) -> list[str]:
        return [f"if p == {p}:", "    computed[0][0] = row", *(f"    {line}" for line in lines)] if lines else []

    def _call(self, call: FunctionCall) -> tuple[str, str]:
        """Return the call, and what must hold for it to be made: that no argument is null."""
        values, present = [], []
        for kind, name in call.arguments:
            if kind not in (REGISTER, COLUMN):
                values.append("t")
                continue
            place, index = (self._registers[name], "a") if kind == REGISTER else (self._columns[name], "row")
            values.append(f"computed[{place}][{index}]")
            present.append(f"computed[{place + 1}][{index}] != 0")
        number, self._next_call = self._next_call, self._next_call + 1
        return f"u{number}({', '.join(values)})", " and ".join(present) or "True"

    def _test(self, test: FunctionCall) -> list[str]:
        call, present = self._call(test)
        return [f"if not ({present}):", "    return False", f"if not {call}:", "    return False"]

    def _update(self, name: str, update: Expression | FunctionCall) -> list[str]:
        if name not in self._registers:
            return []
        place = self._registers[name]
        values, valid = f"computed[{place}]", f"computed[{place + 1}]"
        if isinstance(update, Expression):
            source = self._assigned[update]
            return [f"{values}[b] = computed[{source}][row]", f"{valid}[b] = computed[{source + 1}][row]"]
        call, present = self._call(update)
        return [
            f"if {present}:",
            f"    value = {call}",
            "    if value is not None:",
            f"        put({values}, b, value, {self._numbers[name]})",
            f"        {valid}[b] = 1",
            "    else:",
            f"        {valid}[b] = 0",
        ]

    def _copies(self) -> list[str]:
        places = [place + k for place in self._registers.values() for k in (0, 1)]
        return [f"computed[{place}][b] = computed[{place}][a]" for place in places]

    def _writes(self) -> list[str]:
        lines = []
        for name, place in self._outputs.items():
            source = self._registers[name]
            lines += [f"computed[{place + k}][out] = computed[{source + k}][b]" for k in (0, 1)]
        return lines
