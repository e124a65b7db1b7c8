"""The end of a fragment whose rows move on: each row into the outbox of its receivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from squill.engine.batch import Batch
from squill.engine.operator import EDGES, Belongs, Operator, OperatorState
from squill.exchange.routers import Router
from squill.plan.node import Node
from squill.time import INFINITY, ProgressType

__all__ = ["Outbox", "ScatterSink"]

ENOUGH_ROWS = 16_384
"""Pieces of this many rows are sent as they are; smaller ones are put together first."""


class Outbox(Protocol):
    """Where a producer leaves rows and its clock; per receiver rows come in sync order."""

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        """Leave rows, the same for all of these; may block until there is room. Return how many bytes were written."""
        ...

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        """Promise receivers that no row below a time will follow; never blocks. Infinity is the end."""
        ...


class ScatterSink(Operator):
    """Routes rows and sends them in batches worth sending; holds fewer than `ENOUGH_ROWS` per lane.

    Before it may block, and after each batch, all receivers are told how far time has come for them, so that
    those without rows go on.
    """

    demands = EDGES

    def __init__(self, node: Node, router: Router, outbox: Outbox) -> None:
        super().__init__(node)
        self._router = router
        self._outbox = outbox
        # Somebody waits for the answer at each progress point, and a row that is held holds it back.
        self._is_progress = isinstance(node.time, ProgressType)
        self._held: list[list[Batch]] = [[] for _ in router.lanes]
        self._held_rows = [0] * len(router.lanes)

    def push(self, batch: Batch, port: int = 0) -> None:
        self._tell(batch.first_sync)
        for lane, part in self._router(batch):
            self._held[lane].append(part)
            self._held_rows[lane] += len(part)
            if self._held_rows[lane] >= ENOUGH_ROWS:
                self._send(lane)

    def advance(self, t: int, port: int = 0) -> None:
        self.clock = t
        if t == INFINITY or self._is_progress:
            self.flush()
        else:
            self._tell(t)

    def flush(self) -> None:
        """Send what is held, and tell all receivers the time."""
        for lane, held in enumerate(self._held):
            if held:
                self._send(lane)
        self._tell(self.clock)

    def save(self) -> OperatorState:
        """Return the clock and the router's place; nothing is held after `flush`."""
        return {"clock": self.clock, "router": self._router.save()}

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        self._router.load(state["router"])

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        return True

    def _send(self, lane: int) -> None:
        rows, self._held[lane], self._held_rows[lane] = Batch.concat(self._held[lane]), [], 0
        self._outbox.send(self._router.lanes[lane], rows)

    def _tell(self, t: int) -> None:
        """Tell receivers the time; rows that are held for one hold its time back."""
        lanes = zip(self._router.lanes, self._held, strict=True)
        self._outbox.tell([(lane, min(t, held[0].first_sync) if held else t) for lane, held in lanes])
