"""How many tasks run at once is known once the executors have come, and what fits nowhere is refused."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squill.errors import ClusterError
from squill.runtime.spark import slots
from squill.runtime.spark.slots import slots_of
from tests.spark.shared import run_driver
from tests.spark.standalone import standalone_cluster


class Session:
    """Stands for one on a cluster, whose executors have `cores` cores and come so many seconds after its beginning."""

    def __init__(self, master: str, task_cores: int, cores: list[int], come: list[float], default: int = 2) -> None:
        self.conf = SimpleNamespace(get=lambda name, _: {"spark.master": master}[name])
        self._executors = [(0.0, 0), *zip(come, cores, strict=True)]  # the driver is the first one
        self._task_cores = task_cores
        store = SimpleNamespace(executorList=self._listed)
        context = SimpleNamespace(statusStore=lambda: store, maxNumConcurrentTasks=self._tasks)
        context.resourceProfileManager = lambda: SimpleNamespace(defaultResourceProfile=lambda: None)
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context), defaultParallelism=default)

    def _there(self) -> list[tuple[float, int]]:
        return [(at, cores) for at, cores in self._executors if at <= time.time()]

    def _tasks(self, _: object) -> int:
        return sum(cores // self._task_cores for _, cores in self._there())

    def _listed(self, _: bool) -> Any:
        entries = [
            SimpleNamespace(
                addTime=lambda at=at: SimpleNamespace(getTime=lambda: at * 1_000), totalCores=lambda cores=cores: cores
            )
            for at, cores in self._there()
        ]
        return SimpleNamespace(size=lambda: len(entries), apply=entries.__getitem__)


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves, from the beginning of the session on."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(slots, "time", SimpleNamespace(time=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(f"{__name__}.time", SimpleNamespace(time=lambda: now[0]))
    return now


CLUSTER = "spark://host:7077"


def test_executors_that_come_one_by_one_are_all_counted(waited: list[float]) -> None:
    session = Session(CLUSTER, task_cores=2, cores=[4, 5], come=[1, 4])
    assert slots_of(session, 2, count_all=True) == 4
    assert waited[0] == pytest.approx(4 + slots.SETTLED_SECONDS, abs=0.2)


def test_cluster_that_has_been_there_for_long_is_not_waited_for(waited: list[float]) -> None:
    waited[0] = 60.0
    assert slots_of(Session(CLUSTER, task_cores=1, cores=[4], come=[1]), 1, count_all=True) == 4
    assert waited == [60.0]


def test_executors_without_the_cores_of_a_task_are_refused() -> None:
    session = Session(CLUSTER, task_cores=4, cores=[2, 3], come=[1, 1])
    with pytest.raises(ClusterError, match=r"a task needs 4 cores, but no executor has more than 3\nHint: .*fewer"):
        slots_of(session, 4, count_all=False)


def test_where_machines_are_named_nobody_is_waited_for_but_to_see_whether_tasks_fit(waited: list[float]) -> None:
    assert slots_of(Session(CLUSTER, task_cores=1, cores=[], come=[]), 1, count_all=False) == 2
    assert waited == [0.0]
    assert slots_of(Session(CLUSTER, task_cores=2, cores=[2, 2], come=[3, 9]), 2, count_all=False) == 1
    assert waited[0] == pytest.approx(3, abs=0.2)


def test_executors_that_come_with_the_work_are_not_waited_for_without_end(waited: list[float]) -> None:
    assert slots_of(Session(CLUSTER, task_cores=2, cores=[], come=[], default=8), 2, count_all=True) == 4
    assert waited[0] == pytest.approx(slots.FIRST_SECONDS, abs=0.2)


def test_slots_of_one_host_are_those_of_its_cores_whatever_rdds_are_cut_into(waited: list[float]) -> None:
    session = Session("local[3]", task_cores=1, cores=[3], come=[0], default=64)
    assert slots_of(session, 1, count_all=True) == 3
    assert waited == [0.0]


ON_A_CLUSTER = """
import sys
import squill as sq

with sq.spark(master=sys.argv[1]) as all_of_it:
    assert all_of_it.shards == 4, all_of_it
for machines in (None, 1):
    try:
        sq.spark(master=sys.argv[1], machines=machines, cores=3)
    except sq.errors.ClusterError as error:
        assert "a task needs 3 cores, but no executor has more than 2" in str(error), error
    else:
        raise AssertionError("tasks that fit nowhere were accepted")
"""


@pytest.mark.spark
def test_two_workers_of_two_cores(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=2, cores=2) as address:
        run_driver(ON_A_CLUSTER, address)
