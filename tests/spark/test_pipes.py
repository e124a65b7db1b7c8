"""Early answers on Spark: the same as in process, also after workers are killed; and nothing is left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.errors import ClusterError, ShardError, UserFunctionError
from squill.runtime.spark.runtime import SparkRuntime
from squill.stream import Stream
from tests.spark.shared import session_of
from tests.unit.runtime.pipes.test_pipes import BY_USER, QUERIES, ctr, shown

pytestmark = pytest.mark.spark

PipeTask = Callable[[Any, Iterator[Any]], Iterator[Any]]


def cluster_of(
    cluster: sq.Cluster, machines: int, folder: Path | None = None, task: PipeTask | None = None, *, tls: bool = False
) -> sq.Cluster:
    """A cluster on the same session, of two slots, however many machines it has."""
    runtime = SparkRuntime(session_of(cluster), machines=machines, cores=1, folder=folder, tls=tls)
    runtime.pipe_task = task
    return sq.Cluster(runtime)


def assert_nothing_runs(cluster: sq.Cluster, before: set[threading.Thread]) -> None:
    tracker = session_of(cluster).sparkContext.statusTracker()
    deadline = time.monotonic() + 60
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tracker.getActiveJobsIds()) == []
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("machines", [1, 2, 4])
def test_early_answers_are_those_in_process(spark_cluster: sq.Cluster, name: str, machines: int) -> None:
    query = QUERIES[name]()
    found = shown(query.progressive(BY_USER, on=cluster_of(spark_cluster, machines)))
    assert found == shown(query.progressive(BY_USER))


def test_files_are_read_by_tasks(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    for number in range(3):
        rows = range(number * 100, number * 100 + 100)
        frame = pl.DataFrame({"k": [row % 7 for row in rows], "x": rows})
        frame.write_parquet(tmp_path / f"{number}.parquet", row_group_size=40)
    query = sq.scan(tmp_path / "*.parquet").where(sq.col("x") % 3 > 0).group_aggregate("k", s=sq.sum("x"))
    for given in (sq.progress.fractions(4), sq.progress.stratified("k", 5), sq.progress.exponential(10, 2)):
        assert shown(query.progressive(given, on=spark_cluster)) == shown(query.progressive(given))


@pytest.mark.parametrize("ha", [False, True])
def test_tasks_read_what_is_stored_in_the_order_of_progress(
    spark_cluster: sq.Cluster, tmp_path: Path, ha: bool
) -> None:
    rows = pl.DataFrame({"user": [row % 97 for row in range(3_000)], "x": range(3_000)})
    given = sq.progress.hashed("user", steps=10)
    spark_cluster.from_frame(rows).to_storage(tmp_path / "rows", progress=given)
    stored = sq.scan(tmp_path / "rows")
    by_user = stored.group_aggregate("user", s=sq.sum("x")).aggregate(n=sq.count(), most=sq.max("s"))
    for query in (stored.group_aggregate(g=sq.col("user") % 3, n=sq.count()), by_user):
        expected = shown(query.progressive())
        assert len(expected) == 10
        assert shown(query.progressive(on=spark_cluster, ha=ha)) == expected
        assert shown(sq.from_frame(rows).group_aggregate("user", s=sq.sum("x")).progressive(given)) == shown(
            stored.group_aggregate("user", s=sq.sum("x")).progressive(on=spark_cluster, ha=ha)
        )


def test_a_query_over_time_is_one_job(spark_cluster: sq.Cluster) -> None:
    scheduler = session_of(spark_cluster).sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    assert len(shown(QUERIES["over time"]().progressive(BY_USER, on=spark_cluster))) == 7
    assert scheduler.numTotalJobs() == before + 1


def test_leaving_the_loop_of_a_query_over_time_leaves_nothing(spark_cluster: sq.Cluster) -> None:
    before = set(threading.enumerate())
    for early in QUERIES["over time"]().progressive(sq.progress.hashed("user", 90), on=spark_cluster):
        assert early.progress == 0
        break
    assert_nothing_runs(spark_cluster, before)


def test_leaving_the_loop_leaves_nothing(spark_cluster: sq.Cluster, spark_folder: Path) -> None:
    before = set(threading.enumerate())
    answers = lingering().progressive(STEPS, on=spark_cluster, ha=True)
    for early in answers:
        assert early.progress == 0
        break
    assert_nothing_runs(spark_cluster, before)
    assert list(spark_folder.iterdir()) == []
    assert answers.status().state == "over"


def test_with_tls_all_is_the_same(spark_cluster: sq.Cluster) -> None:
    found = shown(ctr().progressive(BY_USER, on=cluster_of(spark_cluster, 2, tls=True)))
    assert found == shown(ctr().progressive(BY_USER))


def test_an_error_of_the_users_is_raised_with_its_place(spark_cluster: sq.Cluster) -> None:
    def fail(rows: pl.DataFrame) -> pl.DataFrame:
        if 13 in rows["x"]:
            raise ValueError("thirteen")
        return rows

    before = set(threading.enumerate())
    query = sq.from_frame({"x": range(100)}).map_batches(fail).group_aggregate("x", n=sq.count())
    with pytest.raises(UserFunctionError, match=r"^fragment 1, shard \d of 2.*thirteen"):
        list(query.progressive(sq.progress.rows(10), on=spark_cluster))
    assert_nothing_runs(spark_cluster, before)


def test_what_ha_keeps_needs_a_folder(spark_cluster: sq.Cluster) -> None:
    with pytest.raises(ClusterError, match="ha=True keeps rows in files, and this cluster has no folder"):
        ctr().progressive(BY_USER, on=cluster_of(spark_cluster, 2), ha=True)


# -- workers that are killed ----------------------------------------------------------------------------------

STEPS = sq.progress.hashed("user", 20)
ROWS = 200_000
"""Enough for every step to be a batch of its own, so that the early ones are answered while others wait."""


def rows_of_users(start: str | None = None) -> Stream:
    numbers = np.arange(ROWS)
    data = pl.DataFrame({"t": numbers, "user": numbers * 7919 % 997, "x": 1 / (numbers % 89 + 1)})
    return sq.from_frame(data, start=start, name="rows")


def slowly(rows: Stream) -> Stream:
    """Let rows take their time."""

    def linger(rows: pl.DataFrame) -> pl.DataFrame:
        import time

        time.sleep(0.05)
        return rows

    return rows.map_batches(linger)


def lingering() -> Stream:
    """Sums of floats, by two keys one after the other."""
    rows = slowly(rows_of_users())
    sums = rows.group_aggregate("user", s=sq.sum("x"), n=sq.count())
    return sums.group_aggregate(g=sq.col("user") % 10, total=sq.sum("s"), n=sq.sum("n"), most=sq.max("s"))


def lingering_over_time() -> Stream:
    """Sums of floats in windows, where rows go on to the shard of their user."""
    sums = {"g": sq.max("user") % 10, "total": sq.sum("x"), "n": sq.count(), "most": sq.max("x")}
    return slowly(rows_of_users("t").group_apply("user", lambda user: user.tumbling_window(50_000).aggregate(**sums)))


def killing(marker: Path, task: int, times: int = 1) -> PipeTask:
    """A task that kills its worker when it is told so by a file, as often as it may."""

    def run(invitation: Any, batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal
        import threading
        import time

        from squill.runtime.spark.pipes.run import run_pipe_task

        (batch,) = batches
        is_over = threading.Event()

        def watch() -> None:
            while not (marker / "now").exists():
                if is_over.wait(0.005):
                    return
            for number in range(times):
                try:
                    (marker / f"killed-{number}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

        if batch.column(0).to_pylist() == [task]:
            threading.Thread(target=watch, daemon=True).start()
        try:
            yield from run_pipe_task(invitation, iter([batch]))
        finally:
            is_over.set()

    return run


def check_killed(
    cluster: sq.Cluster, tmp_path: Path, *, after: int, task: int, ha: bool, times: int = 1, query: Stream | None = None
) -> None:
    """Kill a worker once so many answers were given; all answers must be as if nothing had happened, each once."""
    marker, folder = tmp_path / "marker", tmp_path / "runs"
    marker.mkdir()
    folder.mkdir()
    query = query or lingering()
    before = set(threading.enumerate())
    if not after:
        (marker / "now").touch()
    answers = query.progressive(STEPS, on=cluster_of(cluster, 2, folder, killing(marker, task, times)), ha=ha)
    found = []
    for early in answers:
        found.append(early)
        if len(found) == after:
            (marker / "now").touch()
    assert len(list(marker.glob("killed-*"))) == times, "no worker was killed"
    assert answers.status().restarts == times
    assert [early.progress for early in found] == list(range(20))
    for early, expected in zip(found, query.progressive(STEPS), strict=True):
        assert early.fraction == expected.fraction
        assert early.frame["n"].to_list() == expected.frame["n"].to_list()
        assert early.frame["g"].to_list() == expected.frame["g"].to_list()
        assert early.frame["total"].to_list() == pytest.approx(expected.frame["total"].to_list(), rel=1e-9)
    assert_nothing_runs(cluster, before)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ha", [False, True])
def test_a_killed_worker_changes_no_answer(spark_cluster: sq.Cluster, tmp_path: Path, ha: bool) -> None:
    check_killed(spark_cluster, tmp_path, after=5, task=1, ha=ha)


@pytest.mark.faults
@pytest.mark.parametrize("ha", [False, True])
@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("after", [0, 1, 2, 5, 9, 14])
def test_a_worker_killed_at_some_moment_changes_no_answer(
    spark_cluster: sq.Cluster, tmp_path: Path, after: int, task: int, ha: bool
) -> None:
    check_killed(spark_cluster, tmp_path, after=after, task=task, ha=ha)


def test_a_worker_killed_under_a_query_over_time_changes_no_answer(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    check_killed(spark_cluster, tmp_path, after=5, task=1, ha=True, query=lingering_over_time())


@pytest.mark.faults
@pytest.mark.parametrize("ha", [False, True])
@pytest.mark.parametrize("after", [0, 2, 9, 14])
def test_a_worker_killed_at_some_moment_under_a_query_over_time_changes_no_answer(
    spark_cluster: sq.Cluster, tmp_path: Path, after: int, ha: bool
) -> None:
    check_killed(spark_cluster, tmp_path, after=after, task=0, ha=ha, query=lingering_over_time())


@pytest.mark.faults
@pytest.mark.parametrize("ha", [False, True])
def test_workers_killed_again_and_again_change_no_answer(spark_cluster: sq.Cluster, tmp_path: Path, ha: bool) -> None:
    check_killed(spark_cluster, tmp_path, after=3, task=1, ha=ha, times=3)


def test_a_worker_that_dies_every_time_is_reported(spark_cluster: sq.Cluster) -> None:
    def die(invitation: Any, batches: Iterator[Any]) -> Iterator[Any]:
        import os

        os._exit(17)

    before = set(threading.enumerate())
    answers = ctr().progressive(BY_USER, on=cluster_of(spark_cluster, 2, task=die))
    with pytest.raises(ShardError, match="a Spark task failed: "):
        list(answers)
    assert answers.status().restarts == 3
    assert_nothing_runs(spark_cluster, before)
