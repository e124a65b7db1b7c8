"""Frames of the answer come as tasks of the last stage finish."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import ShardError, UserFunctionError
from squill.runtime.spark import parcels
from squill.runtime.spark.jobs import filler, filler_rows
from squill.runtime.spark.parcel import PARCEL
from tests.spark.shared import runtime_of, session_of
from tests.unit.runtime.cases import CASES

pytestmark = pytest.mark.spark

FRAME = pl.DataFrame({"t": [1, 2], "x": [0, 1]})
PATIENCE_SECONDS = 120


@pytest.fixture(params=["files", "shuffle"])
def cluster(request: pytest.FixtureRequest, spark_cluster: sq.Cluster) -> sq.Cluster:
    runtime = runtime_of(spark_cluster)
    return sq.spark(runtime.session, machines=2, folder=runtime.folder, channel=request.param)


def second_shard_waits(cluster: sq.Cluster, go_on: Path, then: Callable[[], object] = int) -> sq.ShardedStream:
    """Return two rows, on two shards after a movement; the second comes when the file is there."""

    def wait(frame: pl.DataFrame) -> pl.DataFrame:
        end = time.monotonic() + PATIENCE_SECONDS
        while frame["x"][0] == 1 and not go_on.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        if frame["x"][0] == 1:
            then()
        return frame

    moved = cluster.from_frame(FRAME, start="t", shards=2).multicast(sq.col("x"))
    return moved.query(lambda s: s.map_batches(wait, schema={"x": pl.Int64}))


def active_jobs(cluster: sq.Cluster) -> list[int]:
    return list(session_of(cluster).sparkContext.statusTracker().getActiveJobsIds())


def test_first_frame_does_not_wait_for_the_last_task(cluster: sq.Cluster, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    frames = second_shard_waits(cluster, go_on).batches()
    assert next(frames)["x"].to_list() == [0]
    assert active_jobs(cluster)
    go_on.touch()
    assert [frame["x"].to_list() for frame in frames] == [[1]]


def test_left_loop_cancels_the_job(cluster: sq.Cluster, spark_folder: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    frames = second_shard_waits(cluster, tmp_path / "never").batches()
    assert next(frames)["x"].to_list() == [0]
    begin = time.monotonic()
    frames.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begin < PATIENCE_SECONDS / 2
    assert active_jobs(cluster) == []
    assert list(spark_folder.iterdir()) == []
    assert threading.active_count() == before


def test_job_that_somebody_cancels_is_said(cluster: sq.Cluster, spark_folder: Path, tmp_path: Path) -> None:
    """As Spark's web pages do it."""
    frames = second_shard_waits(cluster, tmp_path / "never").batches()
    assert next(frames)["x"].to_list() == [0]
    session_of(cluster).sparkContext.cancelAllJobs()
    with pytest.raises(ShardError, match=r"failed: \[SPARK_JOB_CANCELLED\] .*\nHint: somebody has cancelled it"):
        next(frames)
    assert list(spark_folder.iterdir()) == []


def test_later_error_comes_after_the_first_frame(cluster: sq.Cluster, spark_folder: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("no luck")

    go_on = tmp_path / "go on"
    frames = second_shard_waits(cluster, go_on, fail).batches()
    assert next(frames)["x"].to_list() == [0]
    go_on.touch()
    with pytest.raises(UserFunctionError, match=r"(?s)fragment 2, shard 1 of 2.*no luck"):
        next(frames)
    assert list(spark_folder.iterdir()) == []


def test_rows_that_nobody_takes_yet_wait_on_disk(spark_cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "HELD_BYTES", 0)
    cluster = sq.spark(session_of(spark_cluster), machines=2, channel="shuffle")
    plan = CASES["integer keys, microseconds in a zone"].sharded(cluster, to=5)
    assert pl.concat(plan.batches()).sort(pl.all()).equals(plan.collect(sort=True))


def test_many_tasks_need_no_filling(spark_cluster: sq.Cluster) -> None:
    session = session_of(spark_cluster)
    assert filler_rows(session, 64) == 10_000
    assert filler_rows(session, 65) == 0
    rows = filler(PARCEL, "data", 100)
    assert rows.num_rows == 100
    assert rows.column("kind").null_count == 100
    assert len(rows.column("data")[99].as_py()) > 8_192


def test_long_batches_are_not_filled(spark_cluster: sq.Cluster) -> None:
    session, setting = session_of(spark_cluster), "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(setting)
    try:
        for length, expected in ((100_000, 100_000), (1_000_000, 0), (2**31 - 1, 0), (-1, 0)):
            session.conf.set(setting, length)
            assert filler_rows(session, 2) == expected
    finally:
        session.conf.set(setting, before)
