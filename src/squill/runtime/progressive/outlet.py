"""Changes from the shards of a running plan to the one who asks for answers.

Each shard hands over what changed and how far its progress has come. Clocks take no room; changes do, and a shard
that has handed over enough waits until they are taken. Whoever asks takes all that is there at once, so that no
shard waits for another one here. When the plan has to be run again, all shards begin anew, and whoever asks is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from squill.engine.batch import Batch
from squill.engine.egress_changes import ChangeRowsSink
from squill.exchange.flow import Halted
from squill.exchange.scatter import Outbox
from squill.plan.node import Node
from squill.runtime.answer import Part, Receipt
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["ChangesAnswer", "Outlet", "Taken", "TakesChanges"]

ROOM = 64
"""How many batches of changes wait to be taken before shards do."""


class TakesChanges(Protocol):
    """Where the shards of an answer leave changes."""

    def hand(self, shard: int, clock: int, changes: Batch | None) -> None:
        """Leave changes; may wait. They go before the clock that says they are all."""
        ...


@dataclass(frozen=True)
class Taken:
    """All changes that were there, and the clock, infinity at the end; `again` when all shards have begun anew."""

    changes: list[Batch]
    clock: int
    again: bool = False


class Outlet:
    """Where the shards of the answer leave changes; its clock is the least of theirs.

    ``is_counted``  whether it is known which progress points there are; until then time stands still.
    ``attempt``     how often all shards have begun anew.
    """

    def __init__(self, shards: int, is_counted: Callable[[], bool] = lambda: True) -> None:
        self._clocks = dict.fromkeys(range(shards), MINUS_INFINITY)
        self._is_counted = is_counted
        self._batches: list[Batch] = []
        self._changed = threading.Condition()
        self._taken = MINUS_INFINITY
        self.attempt = 0
        self._is_again = False
        self._is_over = False
        self._is_closed = False
        self._failure: BaseException | None = None

    def hand(self, shard: int, clock: int, changes: Batch | None, attempt: int | None = None) -> None:
        """Leave changes; waits while there are enough. What an `attempt` brings that is not the present is refused."""

        def is_refused() -> bool:
            return self._is_closed or attempt not in (None, self.attempt)

        with self._changed:
            while changes is not None and len(self._batches) >= ROOM and not is_refused():
                self._changed.wait()
            if is_refused():
                raise Halted
            if changes is not None:
                self._batches.append(changes)
            self._clocks[shard] = clock
            self._changed.notify_all()

    def start_over(self) -> int:
        """Forget what was handed over and not taken; return the clock up to which answers are given already."""
        with self._changed:
            self._batches = []
            self._clocks = dict.fromkeys(self._clocks, MINUS_INFINITY)
            self._is_again = True
            self.attempt += 1
            self._changed.notify_all()
            return self._taken

    @property
    def is_complete(self) -> bool:
        """Whether all shards have handed over all that they have."""
        with self._changed:
            return self._clock == INFINITY

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

    def take(self, seen: int) -> Taken:
        """Wait for changes, or for a clock beyond `seen`; return all changes and the clock."""
        with self._changed:
            while not (self._batches or self._is_over or self._clock > seen):
                self._changed.wait()
            if self._failure is not None:
                raise self._failure
            taken, self._batches = self._batches, []
            again, self._is_again = self._is_again, False
            clock = INFINITY if self._is_over else self._clock
            self._taken = max(self._taken, clock)
            self._changed.notify_all()
            return Taken(taken, clock, again)

    @property
    def _clock(self) -> int:
        return min(self._clocks.values()) if self._is_counted() else MINUS_INFINITY


class _HandingSink(ChangeRowsSink):
    def __init__(self, node: Node, shard: int, outlet: TakesChanges) -> None:
        super().__init__(node)
        self._shard = shard
        self._outlet = outlet

    def advance(self, t: int, port: int = 0) -> None:
        super().advance(t, port)
        self._outlet.hand(self._shard, t, self.take_rows())


class _HandingPart:
    def __init__(self, root: Node, shard: int, outlet: TakesChanges) -> None:
        self.sink = _HandingSink(root, shard, outlet)
        self._shard = shard

    def finish(self) -> Receipt:
        return Receipt(shard=self._shard)


@dataclass(frozen=True)
class ChangesAnswer:
    """All changes to the outlet, as they come."""

    outlet: TakesChanges
    keeps_shards: bool = True

    @contextmanager
    def open(self, root: Node, shard: int, attempt: int, outbox: Outbox | None) -> Iterator[Part]:
        yield _HandingPart(root, shard, self.outlet)
