"""ConsecutivePairs: every event of a key with the one after it."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.belongs import at_slots
from squill.engine.buffers import grown
from squill.engine.columns import Array, read_only
from squill.engine.event_pairs import Conditions, check_points, pair_rows
from squill.engine.instants import InstantBuffer, in_order
from squill.engine.kernels import pairs as kernels
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.operator import STARTS, Belongs, OperatorState, register
from squill.engine.owned import owned
from squill.engine.row_store import RowStore
from squill.engine.time_queue import TimeQueue
from squill.plan.nodes import ConsecutivePairs

__all__ = ["ConsecutivePairsOperator"]


@register(ConsecutivePairs)
class ConsecutivePairsOperator(KeyedOperator):
    """Whole instants in order; state: the last event of each key, while it can still be the first of a pair."""

    demands = STARTS

    def __init__(self, node: ConsecutivePairs) -> None:
        super().__init__(node)
        self._node = node
        self._within = node.within or 0
        self._conditions = Conditions({"first": node.first, "second": node.second}, node)
        self._keys = KeySlots(node.keys, node.parent.schema)
        self._slots = np.zeros((16, kernels.SLOT_SIZE), np.int64)
        self._store = RowStore({name: node.parent.schema[name] for name in node.others})
        self._instant = InstantBuffer()
        self._ends = TimeQueue()

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self._node.parent.properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        if len(batch):
            check_points(batch, self._node)
            reached = int(batch.sync[-1])
            self._run(self._instant.push(batch))
            self._expire(reached)

    def advance(self, t: int, port: int = 0) -> None:
        self._run(self._instant.advance(t))
        self._expire(t)
        self.emit_clock(t)

    def _run(self, batch: Batch | None) -> None:
        if batch is None:
            return
        batch = in_order(batch, self._node.order_by, self._node.parent.time, self._node.name)
        slots = self._keys.slots(batch)
        self._slots = grown(self._slots, self._keys.capacity)
        base = self._store.append({name: batch.columns[name] for name in self._node.others}, len(batch))
        left, right = np.empty(len(batch), np.int64), np.empty(len(batch), np.int64)
        count = kernels.consecutive_pairs(
            read_only(batch.sync), read_only(slots), base, *self._conditions(batch), self._within, self._slots, left,
            right,
        )  # fmt: skip
        if count:
            self.emit(pair_rows(self._node, self._store.gather(left[:count]), batch.take(right[:count])))
        self._settle(batch, slots, base)

    def _settle(self, batch: Batch, slots: np.ndarray, base: int) -> None:
        idle = np.empty(len(slots), np.int32)
        self._keys.release(idle[: kernels.idle_slots(read_only(slots), self._slots, idle)])
        if self._within:
            # Only the rows that wait: the last of their keys.
            waits = self._slots[slots, kernels.WAITING] == base + 1 + np.arange(len(slots))
            chosen = slots[waits].astype(np.int64)
            self._ends.add(Batch(self._slots[chosen, kernels.UNTIL], chosen))
        self._compact()

    def _compact(self) -> None:
        if self._store.is_wasteful(self._keys.live):
            self._keep_waiting()

    def _keep_waiting(self) -> None:
        alive = np.flatnonzero(self._slots[:, kernels.WAITING])
        self._store.keep(self._slots[alive, kernels.WAITING] - 1)
        self._slots[alive, kernels.WAITING] = np.arange(1, len(alive) + 1)

    def _expire(self, reached: int) -> None:
        due = self._ends.pop_until(reached)
        if due is None:
            return
        slots = np.unique(due.other)
        waiting = self._slots[slots]
        over = slots[(waiting[:, kernels.WAITING] != 0) & (waiting[:, kernels.UNTIL] <= reached)]
        self._slots[over, kernels.WAITING] = 0
        self._keys.release(over.astype(np.int32))

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "slots": self._slots,
            "store": self._store.save(),
            "instant": self._instant.save(),
            "ends": self._ends.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._slots = owned(state["slots"])
        self._store.load(state["store"])
        self._instant.load(state["instant"])
        self._ends.load(state["ends"])

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        self._slots = at_slots(self._slots, kept)
        self._keep_waiting()
        self._instant.keep(mine)
        self._ends.keep_numbers(number_of)

    @property
    def state_rows(self) -> int:
        return int(np.count_nonzero(self._slots[:, kernels.WAITING])) + len(self._instant)
