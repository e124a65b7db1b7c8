"""Early answers of a sharded plan: its shards run while the caller looks at an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from squill.plan.fragments import ShardedPlan
from squill.runtime.progressive.answers import Step
from squill.runtime.progressive.outlet import Outlet
from squill.runtime.progressive.points import ChangesByPoint, Counted
from squill.runtime.progressive.status import Watch
from squill.runtime.runtime import Runtime
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["on_shards"]


def on_shards(
    runtime: Runtime, plan: ShardedPlan, counted: Counted, watch: Watch, *, ha: bool = False
) -> Iterator[Step]:
    """Run the plan and yield its progress points once every shard of the answer is past them.

    Whoever stops asking stops the run: when the iterator is closed no thread is left.
    """
    outlet = Outlet(plan.answer.layout.shards, lambda: counted.is_complete)
    stop = threading.Event()

    def work() -> None:
        failure: BaseException | None = None
        try:
            runtime.run_early(plan, outlet, stop=stop, watch=watch, ha=ha)
        except BaseException as error:  # noqa: BLE001  (raised again where somebody waits for answers)
            failure = error
        outlet.end(failure)

    runner = threading.Thread(target=work, name="progressive", daemon=True)
    changes = ChangesByPoint(counted)
    runner.start()
    try:
        clock = MINUS_INFINITY
        while clock < INFINITY:
            taken = outlet.take(clock)
            if taken.again:
                changes.start_over()
            for batch in taken.changes:
                changes.add(batch)
            clock = taken.clock
            yield from changes.until(clock)
    finally:
        stop.set()
        outlet.close()
        runner.join()
