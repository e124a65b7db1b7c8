"""Distinct: of equal events alive together, one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aggregation.empty_slots import EmptySlots
from squill.engine.aggregation.schedule import Deltas
from squill.engine.aggregation.schedules import schedule_for
from squill.engine.batch import Batch
from squill.engine.hashing import supports
from squill.engine.kernels.cells import cells_to_presence
from squill.engine.operator import Belongs, Operator, OperatorState, register
from squill.engine.operators.in_parts import InParts
from squill.engine.row_table import RowTable
from squill.plan.nodes import Distinct

__all__ = ["DistinctOperator", "distinct_operator"]

NO_SLOTS: npt.NDArray[Any] = np.empty(0, np.int32)


@register(Distinct)
def distinct_operator(node: Distinct) -> Operator:
    """Return the operator; rows without times, of which none ends, may be worked off in parts."""
    # Equal rows meet whichever of their columns tell.
    keys = [name for name, dtype in node.schema.items() if supports(dtype)]
    if node.is_relational and keys:
        return InParts(node, keys, lambda: DistinctOperator(node))
    return DistinctOperator(node)


class DistinctOperator(Operator):
    """A slot per payload; an edge whenever its alive count leaves or reaches zero."""

    def __init__(self, node: Distinct) -> None:
        super().__init__(node)
        self._table = RowTable(node.schema)
        self._schedule = schedule_for(node.parent.properties, [])
        self._empty = EmptySlots(self._schedule)

    def push(self, batch: Batch, port: int = 0) -> None:
        slots = self._table.slots(batch)
        self._schedule.ensure_slots(self._table.capacity)
        self._run(batch, slots, self.clock)

    def advance(self, t: int, port: int = 0) -> None:
        self._run(None, NO_SLOTS, t)
        self.emit_clock(t)

    def _run(self, batch: Batch | None, slots: npt.NDArray[Any], bound: int) -> None:
        for deltas in self._schedule.run(batch, slots, [], bound):
            if deltas.cells:
                self._emit_edges(deltas)
                self._empty.collect(deltas)
        emptied = self._empty.take()
        if len(emptied):
            self._table.release(emptied)

    def _emit_edges(self, deltas: Deltas) -> None:
        n = deltas.cells
        sync, other, slots = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
        count = cells_to_presence(
            deltas.cell_slot, deltas.cell_time, deltas.cell_alive, n, self._schedule.slots, sync, other, slots
        )
        if count:
            self.emit(Batch(sync[:count], other[:count], self._table.gather(slots[:count])))

    def save(self) -> OperatorState:
        return {"clock": self.clock, "table": self._table.save(), "schedule": self._schedule.save()}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._table.load(state["table"])
        self._schedule.load(state["schedule"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is not None:
            self._schedule.keep_slots(self._table.keep(mine))
            self._schedule.ensure_slots(self._table.capacity)
        return True

    @property
    def state_rows(self) -> int:
        return self._table.live + self._schedule.rows_held
