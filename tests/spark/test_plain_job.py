"""Tasks as a plain job: what they return, where they run, and how they stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import squill as sq
from squill.exchange.flow import Halted
from squill.runtime.spark.jobs import jobs_of_one_run
from tests.spark.shared import session_of

pytestmark = pytest.mark.spark

DDL = "task bigint, daemon bigint, tags string"


def where(batches: Iterator[Any]) -> Iterator[Any]:
    import os

    import pyarrow as pa
    from pyspark import TaskContext

    for batch in batches:
        tags = TaskContext.get().getLocalProperty("spark.job.tags")  # type: ignore[union-attr]
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pydict({"task": [number], "daemon": [os.getppid()], "tags": [tags]})


where.__module__ = "__main__"  # sent whole


@pytest.mark.parametrize("one_by_one", [False, True])
def test_every_task_returns_its_batches_under_the_tag_of_the_run(spark_cluster: sq.Cluster, one_by_one: bool) -> None:
    with jobs_of_one_run(session_of(spark_cluster)) as jobs:
        found = pa.Table.from_batches(jobs.run_tasks(where, DDL, [()] * 5, one_by_one=one_by_one))
    assert sorted(found.column("task").to_pylist()) == [0, 1, 2, 3, 4]
    assert all(jobs.tag in tags for tags in found.column("tags").to_pylist())


def test_workers_of_both_kinds_have_one_parent(spark_cluster: sq.Cluster) -> None:
    """Workers that have the package imported, its kernels loaded and states held serve both."""
    with jobs_of_one_run(session_of(spark_cluster)) as jobs:
        parents = {
            parent
            for one_by_one in (False, True)
            for batch in jobs.run_tasks(where, DDL, [()] * 2, one_by_one=one_by_one)
            for parent in batch.column("daemon").to_pylist()
        }
    assert len(parents) == 1


def test_workers_are_used_again(spark_cluster: sq.Cluster) -> None:
    """Which they are only when their input was read to its end."""

    def who(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"task": [os.getpid()], "daemon": [0], "tags": [""]})

    who.__module__ = "__main__"
    workers: set[int] = set()
    with jobs_of_one_run(session_of(spark_cluster)) as jobs:
        for _ in range(4):
            for batch in jobs.run_tasks(who, DDL, [()] * 2, one_by_one=False):
                workers.update(batch.column("task").to_pylist())
    assert len(workers) <= 4


def test_tasks_that_return_nothing_are_no_rows(spark_cluster: sq.Cluster) -> None:
    def nothing(batches: Iterator[Any]) -> Iterator[Any]:
        yield from (batch for batch in batches if not batch.num_rows)

    nothing.__module__ = "__main__"
    with jobs_of_one_run(session_of(spark_cluster)) as jobs:
        assert list(jobs.run_tasks(nothing, DDL, [()] * 2, one_by_one=False)) == []


def test_run_that_is_to_stop_does_not_wait_for_its_tasks(spark_cluster: sq.Cluster) -> None:
    def linger(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        time.sleep(300)
        yield from batches

    linger.__module__ = "__main__"
    stop = threading.Event()
    threading.Timer(1, stop.set).start()
    session = session_of(spark_cluster)
    with pytest.raises(Halted), jobs_of_one_run(session, stop) as jobs:
        list(jobs.run_tasks(linger, DDL, [()] * 2, one_by_one=False))
    assert list(session.sparkContext.statusTracker().getActiveJobsIds()) == []


def test_interrupt_before_a_run_is_not_the_runs(spark_cluster: sq.Cluster) -> None:
    """Who handles Ctrl-C may run something, and is told why that failed."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def fail() -> None:
        with jobs_of_one_run(session_of(spark_cluster)):
            raise ValueError("no luck")

    try:
        interrupt()
    except KeyboardInterrupt:
        with pytest.raises(ValueError, match="no luck"):
            fail()
