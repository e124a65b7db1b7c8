"""Registers that no function touches: each refers to the row that set it, whatever its type is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.columns import taken
from squill.engine.operator import OperatorState
from squill.engine.row_store import RowStore
from squill.plan.expressions import Expression
from squill.plan.nodes import Detect
from squill.plan.nodes.patterns import Register

__all__ = ["Captures"]

Array = npt.NDArray[Any]
NONE = -1


class Captures:
    """The values of the expressions that set registers, for the rows that instances refer to.

    A code is (place of the row) · columns + (which expression); -1 is the register's first value.
    """

    def __init__(self, node: Detect, registers: Sequence[Register]) -> None:
        self.registers = list(registers)
        names = [register.name for register in registers]
        set_by = [
            (name, update)
            for element in node.elements
            for name, update in element.updates
            if name in names and isinstance(update, Expression)
        ]
        self.expressions = list(dict.fromkeys(update.renamed("") for _, update in set_by))
        self._store = RowStore({str(number): item.dtype for number, item in enumerate(self.expressions)})
        self._sources = {
            name: [k for k in range(len(self.expressions)) if self._sets(k, name, set_by)] for name in names
        }

    def _sets(self, number: int, name: str, set_by: Sequence[tuple[str, Expression]]) -> bool:
        return any(its == name and update.renamed("") == self.expressions[number] for its, update in set_by)

    @property
    def columns(self) -> int:
        """How many expressions there are, at least one: what codes are divided by."""
        return max(1, len(self.expressions))

    def number(self, update: Expression) -> int:
        return self.expressions.index(update.renamed(""))

    def append(self, values: Mapping[str, pl.Series], size: int) -> int:
        """Take the expressions' values for a batch; return the place of its first row."""
        return self._store.append(values, size)

    def series(self, number: int, codes: Array) -> pl.Series:
        """Return a register's values."""
        register = self.registers[number]
        sources = self._sources[register.name]
        blank = codes == NONE
        if len(sources) == 1 and not blank.any():
            return self._store.gather(codes // self.columns, [str(sources[0])])[str(sources[0])].alias(register.name)
        # All rows that may be meant, one column under the other, and the first value at the end.
        pieces = [self._store.column(str(source)).alias(register.name) for source in sources]
        pieces.append(pl.Series(register.name, [register.initial], register.dtype))
        offsets = np.zeros(self.columns, np.int64)
        offsets[sources] = np.arange(len(sources)) * len(self._store)
        index = np.where(blank, len(sources) * len(self._store), offsets[codes % self.columns] + codes // self.columns)
        return taken({"": pl.concat(pieces, rechunk=True)}, index)[""].alias(register.name)

    def is_wasteful(self, instances: int) -> bool:
        """True when most rows are referred to by none of so many instances."""
        return self._store.is_wasteful(instances * len(self.registers))

    def compact(self, codes: Array, is_live: Array) -> None:
        """Throw out the rows that no instance refers to; codes are changed in place."""
        live = codes[is_live]
        used = np.unique(live[live != NONE] // self.columns)
        self._store.keep(used)
        moved = np.searchsorted(used, live // self.columns) * self.columns + live % self.columns
        codes[is_live] = np.where(live == NONE, NONE, moved)

    def save(self) -> OperatorState:
        return self._store.save()

    def load(self, state: OperatorState) -> None:
        self._store.load(state)
