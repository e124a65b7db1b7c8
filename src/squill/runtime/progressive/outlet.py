"""Changes from the shards of a running plan to the one who asks for answers.

Each shard hands over what changed and how far its progress has come. Clocks take no room; changes do, and a shard
that has handed over enough waits until they are taken. Whoever asks takes all that is there at once, so that no
shard waits for another one here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from squill.engine.batch import Batch
from squill.engine.egress_changes import ChangeRowsSink
from squill.exchange.flow import Halted
from squill.plan.node import Node
from squill.runtime.answer import Part, Receipt
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["ChangesAnswer", "Outlet"]

ROOM = 64
"""How many batches of changes wait to be taken before shards do."""


class Outlet:
    """Where the shards of the answer leave changes; `clock` is the least of theirs."""

    def __init__(self, shards: int) -> None:
        self._clocks = dict.fromkeys(range(shards), MINUS_INFINITY)
        self._batches: list[Batch] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._is_closed = False
        self._failure: BaseException | None = None

    def hand(self, shard: int, clock: int, changes: Batch | None) -> None:
        """Leave changes; waits while there are enough. Changes go before the clock that says they are all."""
        with self._changed:
            while changes is not None and len(self._batches) >= ROOM and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                raise Halted
            if changes is not None:
                self._batches.append(changes)
            self._clocks[shard] = clock
            self._changed.notify_all()

    def end(self, failure: BaseException | None) -> None:
        """Say that no shard is running any more."""
        with self._changed:
            self._is_over, self._failure = True, failure
            self._changed.notify_all()

    def close(self) -> None:
        """Let whoever waits, or hands over later, stop."""
        with self._changed:
            self._is_closed = True
            self._batches = []
            self._changed.notify_all()

    def take(self, seen: int) -> tuple[list[Batch], int]:
        """Wait for changes, or for a clock beyond `seen`; return all changes and the clock, infinity at the end."""
        with self._changed:
            while not (self._batches or self._is_over or self._clock > seen):
                self._changed.wait()
            if self._failure is not None:
                raise self._failure
            taken, self._batches = self._batches, []
            self._changed.notify_all()
            return taken, INFINITY if self._is_over else self._clock

    @property
    def _clock(self) -> int:
        return min(self._clocks.values())


class _HandingSink(ChangeRowsSink):
    def __init__(self, node: Node, shard: int, outlet: Outlet) -> None:
        super().__init__(node)
        self._shard = shard
        self._outlet = outlet

    def advance(self, t: int, port: int = 0) -> None:
        super().advance(t, port)
        self._outlet.hand(self._shard, t, self.take_rows())


class _HandingPart:
    def __init__(self, root: Node, shard: int, outlet: Outlet) -> None:
        self.sink = _HandingSink(root, shard, outlet)
        self._shard = shard

    def finish(self) -> Receipt:
        return Receipt(shard=self._shard)


@dataclass(frozen=True)
class ChangesAnswer:
    """All changes to the outlet, as they come."""

    outlet: Outlet
    keeps_shards: bool = True

    @contextmanager
    def open(self, root: Node, shard: int, attempt: int) -> Iterator[Part]:
        yield _HandingPart(root, shard, self.outlet)
