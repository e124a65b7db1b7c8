"""Stitch: merge an event that ends at t with one of equal payload that starts at t."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aggregation.empty_slots import EmptySlots
from squill.engine.aggregation.schedule import Deltas
from squill.engine.aggregation.schedules import schedule_for
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots, renumbering
from squill.engine.buffers import grown
from squill.engine.kernels.schedule import ALIVE
from squill.engine.kernels.stitch import stitch_instants
from squill.engine.key_table import KeyTable
from squill.engine.multiset import Multisets
from squill.engine.operator import Belongs, Operator, OperatorState, register
from squill.engine.owned import owned
from squill.engine.row_table import RowTable
from squill.errors import InternalError
from squill.plan.nodes import Stitch

__all__ = ["StitchOperator"]

Array = npt.NDArray[Any]
SLACK = 4_096
"""How many groups without events are put up with before they are let go."""


@register(Stitch)
class StitchOperator(Operator):
    """A slot per payload, a group per (payload, start); what an instant ends and begins is paired at its end.

    State: one number per alive event.
    """

    def __init__(self, node: Stitch) -> None:
        super().__init__(node)
        self._table = RowTable(node.schema)
        self._groups = KeyTable([pl.Int32(), pl.Int64()])
        self._group_in_use = np.zeros(16, np.uint8)
        self._schedule = schedule_for(node.parent.properties, [np.dtype(np.int64)])
        self._open_starts = Multisets()
        self._ended = Multisets()
        self._begun = np.zeros(16, np.int64)
        self._group_now = np.zeros(16, np.int64)
        self._pending = np.zeros(1, np.int64)
        self._alive = 0
        self._empty = EmptySlots(self._schedule)

    def push(self, batch: Batch, port: int = 0) -> None:
        slots = self._table.slots(batch)
        starts = pl.Series("start", np.minimum(batch.sync, batch.other))
        groups = self._groups.slots([pl.Series("slot", slots), starts]).astype(np.int64)
        self._ensure_slots()
        self._group_in_use[groups] = 1
        self._run(batch, slots, groups, self.clock)

    def _ensure_slots(self) -> None:
        self._schedule.ensure_slots(self._table.capacity)
        self._begun = grown(self._begun, self._table.capacity)
        self._group_now = grown(self._group_now, self._table.capacity)
        self._ended.ensure_slots(self._table.capacity)
        self._group_in_use = grown(self._group_in_use, self._groups.capacity)
        self._open_starts.ensure_slots(self._groups.capacity)

    def advance(self, t: int, port: int = 0) -> None:
        self._run(None, np.empty(0, np.int32), np.empty(0, np.int64), t)
        self.emit_clock(t)

    def _run(self, batch: Batch | None, slots: Array, groups: Array, bound: int) -> None:
        columns = [(groups, np.ones(len(groups), np.uint8))]
        for deltas in self._schedule.run(batch, slots, columns, bound):
            self._stitch(deltas)
            self._alive += int(deltas.sign[: deltas.count].sum())
            self._empty.collect(deltas)
        self._release()

    def _stitch(self, deltas: Deltas) -> None:
        # Every delta, and every one that waits, is at most one insert and one remove in each family.
        room = deltas.count + int(self._pending[0])
        self._open_starts.reserve(2 * room)
        self._ended.reserve(2 * room)
        sync, other, slots = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
        count = stitch_instants(
            deltas.slot, deltas.sign, deltas.row, deltas.count, deltas.instant_delta, deltas.instant_cell,
            deltas.instants, deltas.cell_slot, deltas.cell_time, deltas.columns[0][0], self._group_now,
            self._open_starts.state, self._ended.state, self._begun, self._pending, sync, other, slots,
        )  # fmt: skip
        if count < 0:
            raise InternalError("stitch: an event ends that is not open")
        if count:
            self.emit(Batch(sync[:count], other[:count], self._table.gather(slots[:count])))

    # -- what is no longer alive --------------------------------------------------------------------------

    def _release(self) -> None:
        if self._groups.live > 2 * self._alive + SLACK:
            self._release_groups()
        emptied = self._empty.take()
        if len(emptied):
            self._table.release(emptied)

    def _release_groups(self) -> None:
        """Let go of the groups that hold nothing and wait for nothing."""
        used = np.flatnonzero(self._group_in_use)
        offsets, _ = self._open_starts.read(used)
        waiting = self._group_now[np.flatnonzero(self._begun)]
        empty = used[(np.diff(offsets) == 0) & ~np.isin(used, waiting)]
        self._groups.release(empty.astype(np.int32))
        self._group_in_use[empty] = 0

    # -- state --------------------------------------------------------------------------------------------

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "table": self._table.save(),
            "groups": self._groups.save(),
            "group_in_use": self._group_in_use,
            "schedule": self._schedule.save(),
            "open_starts": self._open_starts.save(),
            "ended": self._ended.save(),
            "begun": self._begun,
            "group_now": self._group_now,
            "pending": self._pending,
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._table.load(state["table"])
        self._groups.load(state["groups"])
        self._group_in_use = owned(state["group_in_use"])
        self._schedule.load(state["schedule"])
        self._count_alive()
        self._open_starts.load(state["open_starts"])
        self._ended.load(state["ended"])
        self._begun = owned(state["begun"])
        self._group_now = owned(state["group_now"])
        self._pending = owned(state["pending"])

    def _count_alive(self) -> None:
        self._alive = int(self._schedule.slots[:, ALIVE].sum())

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        (mine,) = belongs
        if mine is None:
            return True
        self._ensure_slots()
        slots, groups = self._table.capacity, self._groups.capacity
        kept = self._table.keep(mine)
        kept_groups = self._groups.keep_under(renumbering(kept, slots))
        group_of = renumbering(kept_groups, groups)
        self._schedule.keep_slots(kept, [group_of])
        self._open_starts.keep_slots(kept_groups)
        self._ended.keep_slots(kept)
        self._group_in_use = at_slots(self._group_in_use, kept_groups)
        self._begun = at_slots(self._begun, kept)
        # Of a payload of which nothing begins it says nothing.
        self._group_now = np.maximum(group_of[at_slots(self._group_now, kept)], 0)
        self._pending[0] = self._begun.sum() + self._ended.read(np.arange(len(kept)))[0][-1]
        self._count_alive()
        self._ensure_slots()
        return True

    @property
    def state_rows(self) -> int:
        return self._table.live + self._groups.live + self._schedule.rows_held
