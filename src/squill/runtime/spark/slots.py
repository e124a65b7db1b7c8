"""How many tasks of a session can run at once, and whether its executors have the cores that one task needs.

Executors of a session that has just begun come one by one, seconds after it says that it is ready: who counts them at
once may find half of the cluster. And where none of them has the cores of a task, Spark says nothing and waits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from squill.errors import ClusterError, PlanError
from squill.runtime.spark.kinds import is_one_host

__all__ = ["check_shards", "concurrent_tasks", "slots_of"]

MOST_SHARDS = 65_536
SETTLED_SECONDS = 5.0
"""When so long no executor has come, no more are waited for."""
FIRST_SECONDS = 30.0
"""So long after the beginning of the session the first executor is waited for."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class _Executors:
    """Those that are there: the cores of each, when the session began, and when the last one came."""

    cores: tuple[int, ...]
    begun: float
    latest: float

    def are_settled(self, now: float, *, one_is_enough: bool) -> bool:
        if not self.cores:
            return now - self.begun >= FIRST_SECONDS
        return one_is_enough or now - self.latest >= SETTLED_SECONDS


def slots_of(session: Any, task_cores: int, *, count_all: bool) -> int:
    """Return how many tasks of `task_cores` cores can run at once; raise where no executor has room for one.

    All executors are waited for, where `count_all`, else only one that says how large they are.
    """
    executors = _executors(session)
    if not is_one_host(session) and (count_all or task_cores > 1):
        while not executors.are_settled(time.time(), one_is_enough=not count_all):
            time.sleep(LOOK_SECONDS)
            executors = _executors(session)
    slots = concurrent_tasks(session)
    if slots == 0 and executors.cores:
        raise ClusterError(
            f"spark: a task needs {task_cores} cores, but no executor has more than {max(executors.cores)}",
            f"use fewer cores, or executors of at least {task_cores}.",
        )
    # Where executors come when there is work for them, nobody knows how many there will be.
    return slots or max(1, int(session.sparkContext.defaultParallelism) // task_cores)


def concurrent_tasks(session: Any) -> int:
    """Return how many tasks can run at once now: what Spark itself asks before it begins a barrier stage."""
    context = session.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def _executors(session: Any) -> _Executors:
    known = session.sparkContext._jsc.sc().statusStore().executorList(True)
    # The driver is one of them; it has cores of its own on local masters only.
    entries = [known.apply(number) for number in range(known.size())]
    came = [entry.addTime().getTime() / 1_000 for entry in entries]
    cores = tuple(entry.totalCores() for entry in entries if entry.totalCores() > 0)
    return _Executors(cores=cores, begun=min(came, default=0.0), latest=max(came, default=0.0))


def check_shards(shards: int) -> None:
    """Raise for more shards than anybody would wait for."""
    if shards > MOST_SHARDS:
        raise PlanError(
            f"spark: {shards:,} shards, each of which is part of a task and writes for all others",
            f"give {MOST_SHARDS:,} at most; some for each slot that the cluster has are enough.",
        )
