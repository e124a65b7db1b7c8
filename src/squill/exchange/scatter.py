"""The end of a fragment whose rows move on: each row into the outbox of its receiver."""

from __future__ import annotations

from typing import Protocol

from squill.engine.batch import Batch
from squill.engine.operator import EDGES, Operator
from squill.exchange.placement import HashPartitioner
from squill.plan.node import Node
from squill.plan.placement import Placement

__all__ = ["Outbox", "ScatterSink"]

ENOUGH_ROWS = 16_384
"""Pieces of this many rows are sent as they are; smaller ones are put together first."""


class Outbox(Protocol):
    """Where a producer leaves rows; per receiver they come in sync order."""

    def send(self, receiver: int, batch: Batch) -> None: ...


class ScatterSink(Operator):
    """Places rows and sends them in batches worth sending; holds fewer than `ENOUGH_ROWS` per receiver."""

    demands = EDGES

    def __init__(self, node: Node, placement: Placement, outbox: Outbox) -> None:
        super().__init__(node)
        self._partition = HashPartitioner(placement)
        self._outbox = outbox
        self._held: list[list[Batch]] = [[] for _ in range(placement.shards)]
        self._held_rows = [0] * placement.shards

    def push(self, batch: Batch, port: int = 0) -> None:
        for receiver, part in self._partition(batch):
            self._held[receiver].append(part)
            self._held_rows[receiver] += len(part)
            if self._held_rows[receiver] >= ENOUGH_ROWS:
                self._send(receiver)

    def finish(self) -> None:
        """Send what is still held; the stream has ended."""
        for receiver, held in enumerate(self._held):
            if held:
                self._send(receiver)

    def _send(self, receiver: int) -> None:
        self._outbox.send(receiver, Batch.concat(self._held[receiver]))
        self._held[receiver] = []
        self._held_rows[receiver] = 0
