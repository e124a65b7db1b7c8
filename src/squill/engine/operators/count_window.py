"""CountWindow: an event lives until the n-th later event of its key."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch
from squill.engine.belongs import at_slots, renumbered_chains
from squill.engine.buffers import grown
from squill.engine.columns import Array
from squill.engine.entries import Entries
from squill.engine.instants import InstantBuffer, in_canonical_order
from squill.engine.kernels.windows import COUNT_SLOT, FIRST, LAST, count_windows
from squill.engine.keyed import KeyedOperator, KeySlots
from squill.engine.operator import STARTS, Belongs, OperatorState, register
from squill.engine.owned import owned
from squill.plan.nodes import CountWindow

__all__ = ["CountWindowOperator"]


@register(CountWindow)
class CountWindowOperator(KeyedOperator):
    """Whole instants in canonical order; state: the last n events of each key."""

    demands = STARTS

    def __init__(self, node: CountWindow) -> None:
        super().__init__(node)
        self._count = node.count
        self._keys = KeySlots(node.keys, node.schema)
        self._entries = Entries(node.schema)
        self._slots = np.zeros((16, COUNT_SLOT), np.int64)
        self._gone = np.zeros(16, np.uint8)
        self._instant = InstantBuffer()

    def push(self, batch: Batch, port: int = 0) -> None:
        if not self.node.inputs[0].properties.ends_known:
            batch = batch.filter(batch.other > batch.sync)
        if len(batch):
            self._run(self._instant.push(batch))

    def advance(self, t: int, port: int = 0) -> None:
        self._run(self._instant.advance(t))
        self.emit_clock(t)

    def _run(self, batch: Batch | None) -> None:
        if batch is None:
            return
        batch = in_canonical_order(batch)
        slots, entries = self._keys.slots(batch), self._entries.add(batch)
        self._slots = grown(self._slots, self._keys.capacity)
        self._gone = grown(self._gone, len(self._entries.start))
        size = 2 * len(batch)
        sync, other, shown = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        freed = np.empty(len(batch), np.int64)
        count, gone = count_windows(
            batch.sync, slots, entries, self._count, self._slots, self._entries.start, self._entries.following,
            self._gone, sync, other, shown, freed,
        )  # fmt: skip
        result = Batch(sync[:count], other[:count], self._entries.columns(shown[:count]))
        self._entries.free(freed[:gone])
        self.emit(result)

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "keys": self._keys.save(),
            "entries": self._entries.save(),
            "slots": self._slots,
            "instant": self._instant.save(),
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._keys.load(state["keys"])
        self._entries.load(state["entries"])
        self._slots = owned(state["slots"])
        self._gone = np.zeros(len(self._entries.start), np.uint8)
        self._instant.load(state["instant"])

    def _keep_slots(self, mine: Belongs, kept: Array, number_of: Array) -> None:
        living = self._entries.living
        entry_of = self._entries.keep(living[mine(self._entries.columns(living))])
        self._slots = at_slots(self._slots, kept)
        chains = [FIRST, LAST]
        self._slots[:, chains] = renumbered_chains(self._slots[:, chains], entry_of)
        self._gone = np.zeros(len(self._entries.start), np.uint8)
        self._instant.keep(mine)

    @property
    def state_rows(self) -> int:
        return self._entries.live + len(self._instant)
