"""Datasets that Spark tasks write: the same files and rows, however often a task was tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import UserFunctionError
from squill.plan.dataset import read_dataset
from squill.runtime.memory import forget_frame
from tests.spark.shared import session_of
from tests.unit.runtime.cases import CASES

pytestmark = pytest.mark.spark

CASE = CASES["integer keys, microseconds in a zone"]


@pytest.fixture
def cluster(spark_cluster: sq.Cluster, spark_folder: Path, tmp_path: Path) -> Iterator[sq.Cluster]:
    session = session_of(spark_cluster)
    with sq.spark(session, machines=2, folder=spark_folder, warehouse=tmp_path / "warehouse") as started:
        yield started


def test_tasks_write_what_collect_gives(cluster: sq.Cluster, spark_folder: Path, tmp_path: Path) -> None:
    plan = CASE.sharded(cluster)
    expected = plan.collect(sort=True)
    plan.to_storage(tmp_path / "out", name="counts")
    assert pl.read_parquet(str(tmp_path / "out/**/*.parquet")).sort(pl.all()).equals(expected)
    again = cluster.dataset("counts").redistribute()
    assert "channel" not in again.explain()
    assert again.collect(sort=True).equals(expected)
    assert list(spark_folder.iterdir()) == []
    # What Spark wrote, threads read.
    with sq.local(cores=2, warehouse=tmp_path / "warehouse") as local:
        assert local.dataset("counts").collect(sort=True).equals(expected)
    Path(read_dataset(tmp_path / "out").paths[0]).unlink()
    assert cluster.dataset("counts").collect(sort=True).equals(expected)


def test_first_attempts_that_fail_leave_nothing(cluster: sq.Cluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def fails_once(frame: pl.DataFrame) -> pl.DataFrame:
        mark = marks / str(frame["x"][0])
        if not mark.exists():
            mark.touch()
            raise OSError(28, "No space left on device")
        return frame

    source = cluster.from_frame({"t": [1, 2, 3, 4], "x": [1, 2, 3, 4]}, start="t")
    plan = source.query(lambda s: s.map_batches(fails_once, schema={"x": pl.Int64}))
    plan.to_storage(tmp_path / "out")
    assert cluster.scan(tmp_path / "out").collect().rows() == [(t, t + 1, t) for t in (1, 2, 3, 4)]
    assert len(list(marks.iterdir())) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["marks", "out", "warehouse"]


def test_tasks_that_always_fail_leave_nothing(cluster: sq.Cluster, tmp_path: Path) -> None:
    def fails(frame: pl.DataFrame) -> pl.DataFrame:
        raise OSError(28, "No space left on device")

    plan = cluster.from_frame({"t": [1, 2]}, start="t").query(lambda s: s.map_batches(fails, schema={"x": pl.Int64}))
    with pytest.raises(UserFunctionError, match="No space left on device"):
        plan.to_storage(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["warehouse"]  # where the failed run is recorded


def test_memory_is_a_memory_filesystem_that_other_clients_map(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = CASE.sharded(cluster)
    expected = plan.collect(sort=True)
    dataset = plan.to_memory("counts")
    folder = Path(dataset.path)
    assert folder.parent.parent in (Path("/dev/shm"), Path("/tmp"))
    assert cluster.dataset("counts").collect(sort=True).equals(expected)
    with sq.local(cores=2, warehouse=tmp_path / "warehouse") as local:
        assert local.dataset("counts").collect(sort=True).equals(expected)
    assert [run.action for run in cluster.catalog.runs() if run.dataset] == ["to_memory"]
    Path(dataset.paths[1]).unlink()
    assert cluster.dataset("counts").collect(sort=True).equals(expected)
    assert [run.action for run in cluster.catalog.runs() if run.dataset] == ["to_memory", "recompute"]
    cluster.close()
    assert not folder.parent.exists()
    with sq.local(cores=2, warehouse=tmp_path / "warehouse") as local:
        assert local.datasets() == []


def test_batches_hold_all_rows(cluster: sq.Cluster) -> None:
    plan = CASE.sharded(cluster)
    assert pl.concat(plan.batches()).sort(pl.all()).equals(plan.collect(sort=True))


@pytest.mark.parametrize("channel", ["files", "shuffle"])
def test_memory_of_several_hosts_is_that_of_the_driver(
    spark_cluster: sq.Cluster, channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, kept = session_of(spark_cluster), tmp_path / "w"
    with sq.spark(session, machines=3, channel=channel, folder=tmp_path / "runs", warehouse=kept) as cluster:
        monkeypatch.setattr("squill.runtime.spark.runtime.is_one_host", lambda _: False)
        plan = CASE.sharded(cluster, splits=3, to=3)
        expected = plan.collect(sort=True)
        dataset = plan.to_memory("counts")
        assert (dataset.path, dataset.rows) == (f"memory:{dataset.version}", expected.height)
        read = cluster.dataset("counts")
        assert read.placement == plan.placement
        assert read.collect(sort=True).equals(expected)
        moved = read.redistribute().query(lambda s: s)
        assert "channel" not in moved.explain()  # the rows of each shard go to that shard again
        assert moved.collect(sort=True).equals(expected)
        forget_frame(dataset.version)  # as another process finds it
        assert cluster.dataset("counts").collect(sort=True).equals(expected)
        assert [run.action for run in cluster.catalog.runs() if run.dataset] == ["to_memory", "recompute"]
        cluster.remove("counts")
        assert cluster.datasets() == []


def test_answer_of_a_plan_that_moves_through_the_shuffle_is_stored(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    with sq.spark(session_of(spark_cluster), machines=2, channel="shuffle", warehouse=tmp_path / "w") as cluster:
        plan = CASE.sharded(cluster)
        expected = plan.collect(sort=True)
        plan.to_storage(tmp_path / "out")
        assert pl.read_parquet(str(tmp_path / "out/**/*.parquet")).sort(pl.all()).equals(expected)
        assert cluster.scan(tmp_path / "out").collect(sort=True).equals(expected)
        assert pl.concat(plan.batches()).sort(pl.all()).equals(expected)
        assert plan.to_spark().count() == expected.height
