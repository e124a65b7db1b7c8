"""SessionWindow: events live until their session ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch
from squill.engine.belongs import at_slots, renumbered_chains
from squill.engine.buffers import grown
from squill.engine.columns import Array
from squill.engine.entries import Entries
from squill.engine.kernels import windows as kernels
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.operator import STARTS, Belongs, OperatorState, register
from squill.engine.owned import owned
from squill.engine.times import refuse_beginningless, time_overflow
from squill.plan.nodes import SessionWindow
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["SessionWindowOperator"]

CHUNK = 65_536


@register(SessionWindow)
class SessionWindowOperator(KeyedOperator):
    """State: the events of open sessions, one end per open session in a heap."""

    demands = STARTS

    def __init__(self, node: SessionWindow) -> None:
        super().__init__(node)
        self._timeout, self._limit = node.timeout, node.max_duration or 0
        self._is_final = node.rows == "final"
        self._keys = KeySlots(node.keys, node.schema)
        self._entries = Entries(node.schema)
        self._slots = np.zeros((16, kernels.SESSION_SLOT), np.int64)
        self._state = np.array([0, 0, kernels.NONE], np.int64)
        self._heap_end = np.empty(16, np.int64)
        self._heap_slot = np.empty(16, np.int64)

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self.node.inputs[0].properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        if not len(batch):
            return
        refuse_beginningless(batch.sync, self.node)
        latest = int(batch.sync[-1])
        if latest + self._timeout >= INFINITY:
            raise time_overflow(self.node, latest)
        self._run(batch.sync, self._keys.slots(batch), self._entries.add(batch), MINUS_INFINITY)

    def advance(self, t: int, port: int = 0) -> None:
        none = np.empty(0, np.int64)
        # At infinity every session is over, whenever it would have ended.
        self._run(none, np.empty(0, np.int32), none, t)
        self.emit_clock(t)

    def _run(self, sync: npt.NDArray[np.int64], slots: npt.NDArray[Any], entries: npt.NDArray[Any], bound: int) -> None:
        self._slots = grown(self._slots, self._keys.capacity)
        self._state[kernels.NEXT_ROW] = 0
        emptied: list[npt.NDArray[Any]] = []
        done = False
        while not done:
            done = self._step(sync, slots, entries, bound, emptied)
        if emptied:
            self._release(np.unique(np.concatenate(emptied)))

    def _step(
        self,
        sync: npt.NDArray[np.int64],
        slots: npt.NDArray[Any],
        entries: npt.NDArray[Any],
        bound: int,
        emptied: list[npt.NDArray[Any]],
    ) -> bool:
        size = min(CHUNK, max(16, 2 * len(sync) + self._entries.live + 1))
        # Every row that opens a session and every session that is cut adds one time to the heap.
        waiting = int(self._state[kernels.HEAP]) + len(sync) + size
        self._heap_end, self._heap_slot = grown(self._heap_end, waiting), grown(self._heap_slot, waiting)
        out_sync, out_other, shown = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        freed, empty = np.empty(size, np.int64), np.empty(size, np.int32)
        done, count, gone, empty_count = kernels.session_windows(
            sync, slots, entries, bound, self._timeout, self._limit, self._is_final, self._state, self._slots,
            self._entries.start, self._entries.following, self._heap_end, self._heap_slot, out_sync, out_other,
            shown, freed, empty,
        )  # fmt: skip
        if self._is_final and count and out_other[count - 1] == INFINITY:
            raise time_overflow(self.node, int(self._entries.start[shown[count - 1]]))
        result = Batch(out_sync[:count], out_other[:count], self._entries.columns(shown[:count]))
        self._entries.free(freed[:gone])
        if empty_count:
            emptied.append(empty[:empty_count])
        self.emit(result)
        return bool(done)

    def _release(self, slots: npt.NDArray[Any]) -> None:
        """Let go of keys without a session, unless one has begun again."""
        idle = (self._slots[slots, kernels.IS_OPEN] == 0) & (self._slots[slots, kernels.WAS_CUT] == 0)
        released = slots[idle]
        self._slots[released] = 0
        # Times of the old key may still be in the heap: they must wake nobody.
        self._slots[released, kernels.WAKE] = INFINITY
        self._keys.release(released)

    def save(self) -> OperatorState:
        waiting = int(self._state[kernels.HEAP])
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "entries": self._entries.save(),
            "slots": self._slots,
            "state": self._state,
            "heap_end": self._heap_end[:waiting],
            "heap_slot": self._heap_slot[:waiting],
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._entries.load(state["entries"])
        self._slots = owned(state["slots"])
        self._state = owned(state["state"])
        self._heap_end = owned(state["heap_end"])
        self._heap_slot = owned(state["heap_slot"])

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        living = self._entries.living
        entry_of = self._entries.keep(living[mine(self._entries.columns(living))])
        self._slots = at_slots(self._slots, kept)
        chains = [kernels.FIRST, kernels.LAST]
        self._slots[:, chains] = renumbered_chains(self._slots[:, chains], entry_of)
        waiting = int(self._state[kernels.HEAP])
        slots = number_of[self._heap_slot[:waiting]]
        stays = np.flatnonzero(slots >= 0)
        stays = stays[np.argsort(self._heap_end[stays], kind="stable")]  # what is in order is a heap
        self._heap_end, self._heap_slot = self._heap_end[stays], slots[stays]
        self._state[kernels.HEAP] = len(stays)

    @property
    def state_rows(self) -> int:
        return self._entries.live
