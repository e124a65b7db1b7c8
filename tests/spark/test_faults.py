"""Attempts that fail or die leave neither a trace in the answer nor a file behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import ClusterError, ShardError, SquillError
from squill.runtime.spark.runtime import SparkRuntime
from squill.testing import assert_same_events
from tests.spark.shared import runtime_of
from tests.unit.runtime.cases import CASES

pytestmark = pytest.mark.spark

CASE = CASES["text keys with nulls, milliseconds"]
Task = Callable[[bytes, Iterator[Any]], Iterator[Any]]


def cluster_running(cluster: sq.Cluster, folder: Path, run: Task) -> sq.Cluster:
    """A cluster on the same session whose tasks run `run`."""
    runtime = SparkRuntime(runtime_of(cluster).session, machines=2, cores=1, folder=folder)
    runtime.task = run
    return sq.Cluster(runtime)


def once(marker: Path, misbehave: Callable[[], None]) -> Task:
    """A task whose first attempt in each fragment writes all its files and then misbehaves."""

    def run(job_bytes: bytes, batches: Iterator[Any]) -> Iterator[Any]:
        from squill.plan.serialise import loads
        from squill.runtime.spark.task import run_task

        number = loads(job_bytes).jobs[0].stage.number
        lines = list(run_task(job_bytes, batches))
        try:
            (marker / f"failed-{number}").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            misbehave()
        yield from lines

    return run


@pytest.mark.parametrize("misbehave", ["raise", "die"])
def test_second_attempt_gives_the_same_answer(spark_cluster: sq.Cluster, tmp_path: Path, misbehave: str) -> None:
    def raises() -> None:
        raise OSError("the disk went away")

    def dies() -> None:
        import os

        os._exit(17)

    marker, folder = tmp_path / "marker", tmp_path / "runs"
    marker.mkdir()
    cluster = cluster_running(spark_cluster, folder, once(marker, raises if misbehave == "raise" else dies))
    assert_same_events(CASE.sharded(cluster).collect(), CASE.in_process())
    assert len(list(marker.iterdir())) == 2, "an attempt of each fragment was to fail"
    assert list(folder.iterdir()) == []


def test_error_of_every_attempt_is_raised_with_its_place(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    def run(job_bytes: bytes, batches: Iterator[Any]) -> Iterator[Any]:
        from squill.exchange.segments import SegmentWriter
        from squill.runtime.spark.task import run_task

        def refuse(*args: object) -> None:
            raise OSError("the disk is full")

        before = SegmentWriter.send
        SegmentWriter.send = refuse  # type: ignore[assignment, method-assign]
        try:
            yield from run_task(job_bytes, batches)
        finally:
            SegmentWriter.send = before  # type: ignore[method-assign]

    cluster = cluster_running(spark_cluster, tmp_path, run)
    with pytest.raises(ShardError, match=r"^fragment 1, shard \d of 2.*: OSError: the disk is full"):
        CASE.sharded(cluster).collect()
    assert list(tmp_path.iterdir()) == []


def test_worker_that_dies_every_time_is_reported(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    def run(job_bytes: bytes, batches: Iterator[Any]) -> Iterator[Any]:
        import os

        os._exit(17)

    cluster = cluster_running(spark_cluster, tmp_path, run)
    with pytest.raises(
        ShardError, match=r"^fragment 1: a Spark task failed: (.|\n)*Hint: .*for want of memory: more shards"
    ):
        CASE.sharded(cluster).collect()
    assert list(tmp_path.iterdir()) == []


def test_files_of_attempts_that_did_not_count_are_not_read(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    def run(job_bytes: bytes, batches: Iterator[Any]) -> Iterator[Any]:
        from pathlib import Path

        from squill.plan.serialise import loads
        from squill.runtime.spark.task import run_task

        (job,) = loads(job_bytes).jobs
        (Path(job.folder) / f"t{job.stage.number}-f{job.stage.number}-s0-a999999.arrow").write_bytes(b"half of a file")
        (Path(job.folder) / f"t{job.stage.number}-f{job.stage.number}-s0-a999998.arrow.part").write_bytes(b"less")
        yield from run_task(job_bytes, batches)

    cluster = cluster_running(spark_cluster, tmp_path, run)
    assert_same_events(CASE.sharded(cluster).collect(), CASE.in_process())
    assert list(tmp_path.iterdir()) == []


def test_runs_leave_nothing_behind(spark_cluster: sq.Cluster, spark_folder: Path) -> None:
    CASE.sharded(spark_cluster).collect()
    assert list(spark_folder.iterdir()) == []


@pytest.mark.faults
@pytest.mark.parametrize("milliseconds", [0, 1, 2, 5, 10, 20, 40, 80, 160, 320])
def test_worker_killed_at_some_moment_changes_nothing(
    spark_cluster: sq.Cluster, tmp_path: Path, milliseconds: int
) -> None:
    marker, folder = tmp_path / "marker", tmp_path / "runs"
    marker.mkdir()

    def run(job_bytes: bytes, batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal
        import threading

        from squill.plan.serialise import loads
        from squill.runtime.spark.task import run_task

        try:
            (marker / f"killed-{loads(job_bytes).jobs[0].stage.number}").touch(exist_ok=False)
            threading.Timer(milliseconds / 1000, os.kill, (os.getpid(), signal.SIGKILL)).start()
        except FileExistsError:
            pass
        yield from run_task(job_bytes, batches)

    cluster = cluster_running(spark_cluster, folder, run)
    for case in CASES.values():
        assert_same_events(case.sharded(cluster).collect(), case.in_process())
        for left in marker.iterdir():
            left.unlink()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("channel", ["files", "shuffle"])
def test_interrupted_run_stops_its_tasks_and_leaves_nothing(
    spark_cluster: sq.Cluster, tmp_path: Path, channel: str
) -> None:
    """As Ctrl-C does it: an error in the thread that waits, while tasks are at work."""
    folder, seen = tmp_path / "runs", tmp_path / "seen"
    seen.mkdir()
    runtime = SparkRuntime(runtime_of(spark_cluster).session, machines=2, cores=1, folder=folder, channel=channel)

    def linger(rows: Any) -> Any:
        import time
        from pathlib import Path

        Path(seen, "begun").touch()
        time.sleep(200)
        Path(seen, "ended").touch()
        return rows

    plan = sq.Cluster(runtime).from_frame({"t": [1, 2], "k": [1, 2]}, start="t").query(lambda s: s.map_batches(linger))

    def interrupt() -> None:
        while not (seen / "begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    begin = time.monotonic()
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        plan.rekey("k").redistribute().collect()
    assert time.monotonic() - begin < 150, "the tasks were waited for"
    tracker = runtime.session.sparkContext.statusTracker()
    deadline = time.monotonic() + 100
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(tracker.getActiveJobsIds()) == []
    assert not (seen / "ended").exists()
    assert not folder.exists() or list(folder.iterdir()) == []
    assert CASE.sharded(spark_cluster).collect().height == CASE.in_process().height


def test_full_disk_is_said_even_where_there_is_no_room_to_say_it(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    def run(job_bytes: bytes, batches: Iterator[Any]) -> Iterator[Any]:
        from pathlib import Path

        from squill.exchange.segments import SegmentWriter
        from squill.runtime.spark.task import run_task

        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        before = SegmentWriter.send, Path.write_bytes
        SegmentWriter.send = full  # type: ignore[assignment, method-assign]
        Path.write_bytes = full  # type: ignore[assignment, method-assign]
        try:
            yield from run_task(job_bytes, batches)
        finally:
            SegmentWriter.send, Path.write_bytes = before  # type: ignore[method-assign]

    cluster = cluster_running(spark_cluster, tmp_path, run)
    with pytest.raises(ShardError) as caught:
        CASE.sharded(cluster).collect()
    what, hint = str(caught.value).split("\n")
    assert re.fullmatch(r"fragment 1, shard \d of 2.*: OSError: \[Errno 28\] No space left on device", what)
    assert hint == (
        "Hint: make room: rows that move between machines are in folder=, stored answers where they are written to."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no filesystem can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield place
    finally:
        # Tasks hold what they have read for a moment after their end.
        end = time.monotonic() + 5
        while subprocess.run(["umount", place], check=time.monotonic() > end, capture_output=True).returncode:
            time.sleep(0.1)


@pytest.mark.faults
def test_full_disk_is_an_error_and_is_empty_afterwards(
    spark_cluster: sq.Cluster, small_disk: Path, tmp_path: Path
) -> None:
    cluster = sq.Cluster(SparkRuntime(runtime_of(spark_cluster).session, machines=2, cores=1, folder=small_disk))
    frame = pl.DataFrame({"t": range(300_000), "k": range(300_000)})
    frame.write_parquet(tmp_path / "rows.parquet")
    for source in (cluster.scan(tmp_path / "rows.parquet", start="t"), cluster.from_frame(frame, start="t")):
        with pytest.raises(ClusterError, match="No space left on device"):
            source.rekey("k").redistribute().collect()
        assert list(small_disk.iterdir()) == []
    cluster = sq.Cluster(SparkRuntime(runtime_of(spark_cluster).session, machines=2, cores=1, folder=tmp_path / "runs"))
    with pytest.raises(ClusterError, match="No space left on device"):
        cluster.scan(tmp_path / "rows.parquet", start="t").rekey("k").redistribute().to_storage(small_disk / "out")
    assert list(small_disk.iterdir()) == []
    assert list((tmp_path / "runs").iterdir()) == []


def test_split_that_cannot_be_read_is_named(spark_cluster: sq.Cluster, spark_folder: Path, tmp_path: Path) -> None:
    for name in ("good", "bad"):
        pl.DataFrame({"t": range(20_000), "k": range(20_000)}).write_parquet(tmp_path / f"{name}.parquet")
    plan = spark_cluster.scan(tmp_path / "*.parquet", start="t").rekey("k").redistribute()
    bad = tmp_path / "bad.parquet"
    content = bytearray(bad.read_bytes())
    content[100:20_000] = bytes(19_900)  # its footer is whole, its pages are not
    bad.write_bytes(content)
    with pytest.raises(SquillError, match=r"^fragment 1, shard \d of 2.*bad\.parquet"):
        plan.collect()
    assert list(spark_folder.iterdir()) == []
