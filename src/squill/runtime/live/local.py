"""Live shards on threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import TypeVar

from squill.runtime.live.host import LivePlan, ShardHost
from squill.runtime.live.orders import Seen, ShardOrder, ShardReport
from squill.runtime.live.postbox import MemoryPostbox
from squill.runtime.threads import Checkpoint, run_on_threads

__all__ = ["LocalRunner"]

T = TypeVar("T")


class LocalRunner:
    """Shards that this process holds; rows move by reference."""

    tries = 1

    def __init__(self, plan: LivePlan, threads: int, stop: Event) -> None:
        self._host = ShardHost(plan)
        self._threads = threads
        self._stop = stop

    def read(self, orders: Sequence[ShardOrder]) -> list[dict[int, Seen]]:
        work: list[Callable[[Checkpoint], dict[int, Seen]]] = [partial(self._host.read, order) for order in orders]
        return self._run(work)

    def work(self, orders: Sequence[ShardOrder], until: Sequence[dict[int, int]]) -> list[ShardReport]:
        work: list[Callable[[Checkpoint], ShardReport]] = [
            partial(self._host.work, order, known, MemoryPostbox()) for order, known in zip(orders, until, strict=True)
        ]
        return self._run(work)

    def look_ahead(self, orders: Sequence[ShardOrder]) -> list[ShardReport]:
        work: list[Callable[[Checkpoint], ShardReport]] = [
            partial(self._host.look_ahead, order, MemoryPostbox()) for order in orders
        ]
        return self._run(work)

    def _run(self, work: Sequence[Callable[[Checkpoint], T]]) -> list[T]:
        if len(work) == 1 or self._threads == 1:
            return [item(lambda: None) for item in work]
        return run_on_threads(work, self._threads)

    def epoch_over(self, epoch: int) -> None:
        """What moved is gone with the reports."""

    def forget(self) -> None:
        self._host.forget()

    def close(self) -> None:
        self._host.forget()
