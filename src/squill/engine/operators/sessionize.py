"""Sessionize: every start event of a key with the first end event after it."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.belongs import along_chains, at_slots, renumbered_chains
from squill.engine.buffers import grown
from squill.engine.columns import Array, read_only
from squill.engine.entries import Entries
from squill.engine.event_pairs import Conditions, check_points, pair_rows
from squill.engine.instants import InstantBuffer, in_canonical_order
from squill.engine.kernels import pairs as kernels
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.operator import STARTS, Belongs, OperatorState, register
from squill.engine.owned import owned
from squill.plan.nodes import Sessionize

__all__ = ["SessionizeOperator"]


@register(Sessionize)
class SessionizeOperator(KeyedOperator):
    """Whole instants; state: the start events that no end event has followed."""

    demands = STARTS

    def __init__(self, node: Sessionize) -> None:
        super().__init__(node)
        self._node = node
        self._conditions = Conditions({"is_start": node.is_start, "is_end": node.is_end}, node)
        self._keys = KeySlots(node.keys, node.parent.schema)
        self._slots = np.zeros((16, kernels.SLOT_SIZE), np.int64)
        self._entries = Entries({name: node.parent.schema[name] for name in node.others})
        self._instant = InstantBuffer()

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self._node.parent.properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        if len(batch):
            check_points(batch, self._node)
            self._run(self._instant.push(batch))

    def advance(self, t: int, port: int = 0) -> None:
        self._run(self._instant.advance(t))
        self.emit_clock(t)

    def _run(self, batch: Batch | None) -> None:
        if batch is None:
            return
        batch = in_canonical_order(batch)
        is_start, is_end = self._conditions(batch)
        matters = (is_start | is_end).view(np.bool_)
        if not matters.all():
            batch, is_start, is_end = batch.filter(matters), is_start[matters], is_end[matters]
        if len(batch):
            self._pair(batch, is_start.view(np.bool_), is_end)

    def _pair(self, batch: Batch, is_start: np.ndarray, is_end: np.ndarray) -> None:
        slots = self._keys.slots(batch)
        self._slots = grown(self._slots, self._keys.capacity)
        entries = np.full(len(batch), kernels.NONE, np.int64)
        entries[is_start] = self._entries.add(batch.filter(is_start))
        left, right = np.empty(self._entries.live, np.int64), np.empty(self._entries.live, np.int64)
        count = kernels.sessionize(
            read_only(batch.sync), read_only(slots), read_only(entries), read_only(is_end), self._slots,
            self._entries.following, left, right,
        )  # fmt: skip
        if count:
            self.emit(pair_rows(self._node, self._entries.columns(left[:count]), batch.take(right[:count])))
            self._entries.free(left[:count])
        idle = np.empty(len(slots), np.int32)
        self._keys.release(idle[: kernels.idle_slots(read_only(slots), self._slots, idle)])

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "slots": self._slots,
            "entries": self._entries.save(),
            "instant": self._instant.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._slots = owned(state["slots"])
        self._entries.load(state["entries"])
        self._instant.load(state["instant"])

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        self._slots = at_slots(self._slots, kept)
        chains = [kernels.FIRST, kernels.LAST]
        # Where nothing waits, the last one is that of a chain that is gone.
        self._slots[self._slots[:, kernels.FIRST] == 0, kernels.LAST] = 0
        entries = along_chains(self._slots[:, kernels.FIRST] - 1, self._entries.following, kernels.NONE)
        self._slots[:, chains] = renumbered_chains(self._slots[:, chains], self._entries.keep(entries))
        self._instant.keep(mine)

    @property
    def state_rows(self) -> int:
        return self._entries.live + len(self._instant)
