"""Live shards on threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from squill.runtime.live.host import LivePlan, ShardHost
from squill.runtime.live.leaves import PushedPortion
from squill.runtime.live.orders import LiveRead, Moved, Seen, ShardOrder, ShardReport
from squill.runtime.live.postbox import MemoryPostbox
from squill.runtime.threads import Checkpoint, run_on_threads

__all__ = ["LocalRunner"]

T = TypeVar("T")

FEW_ROWS = 20_000


def _rows_in(given: object) -> int | None:
    """Return how many rows a shard takes in; None where only reading tells."""
    match given:
        case Moved():
            return sum(len(batch) for run in given.runs for batch in run)
        case LiveRead(portion=None):
            return 0
        case LiveRead(portion=PushedPortion() as pushed):
            return sum(map(len, pushed.batches))
    return None


class LocalRunner:
    """Shards that this process holds; rows move by reference."""

    tries = 1

    def __init__(self, plan: LivePlan, threads: int) -> None:
        self._host = ShardHost(plan)
        self._threads = threads
        self._waits_for_disk = plan.folder is not None

    def read(self, orders: Sequence[ShardOrder]) -> list[dict[int, Seen]]:
        work: list[Callable[[Checkpoint], dict[int, Seen]]] = [partial(self._host.read, order) for order in orders]
        return self._run(work, orders)

    def work(self, orders: Sequence[ShardOrder], until: Sequence[dict[int, int]]) -> list[ShardReport]:
        work: list[Callable[[Checkpoint], ShardReport]] = [
            partial(self._host.work, order, known, MemoryPostbox()) for order, known in zip(orders, until, strict=True)
        ]
        return self._run(work, orders)

    def look_ahead(self, orders: Sequence[ShardOrder]) -> list[ShardReport]:
        work: list[Callable[[Checkpoint], ShardReport]] = [
            partial(self._host.look_ahead, order, MemoryPostbox()) for order in orders
        ]
        return self._run(work, orders)

    def _run(self, work: Sequence[Callable[[Checkpoint], T]], orders: Sequence[ShardOrder]) -> list[T]:
        threads = min(self._threads, self._host.most_at_once or self._threads)
        if len(work) == 1 or threads == 1 or self._is_little(orders):
            return [item(lambda: None) for item in work]
        return run_on_threads(work, threads)

    def _is_little(self, orders: Sequence[ShardOrder]) -> bool:
        """Whether the work is done sooner than threads would begin."""
        if self._waits_for_disk:
            return False
        total = 0
        for order in orders:
            for given in order.inputs.values():
                rows = _rows_in(given)
                if rows is None:
                    return False
                total += rows
        return total < FEW_ROWS

    def take_plan(self, plan: LivePlan) -> None:
        self._host = ShardHost(plan)

    def epoch_over(self, epoch: int) -> None:
        """What moved is gone with the reports."""

    def forget(self) -> None:
        self._host.forget()

    def close(self) -> None:
        self._host.forget()
