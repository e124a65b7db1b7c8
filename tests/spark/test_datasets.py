"""Datasets that Spark tasks write: the same files and rows, however often a task was tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import UserFunctionError
from squill.plan.dataset import read_dataset
from squill.runtime.memory import forget_held
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


@pytest.fixture(params=["files", "shuffle"])
def several_hosts(
    request: pytest.FixtureRequest, spark_cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sq.Cluster]:
    """A cluster whose tasks, as far as it knows, run on several hosts."""
    session, kept = session_of(spark_cluster), tmp_path / "w"
    with sq.spark(session, machines=3, channel=request.param, folder=tmp_path / "runs", warehouse=kept) as cluster:
        monkeypatch.setattr("squill.runtime.spark.runtime.is_one_host", lambda _: False)
        yield cluster
    assert cached_tables(session) == 0, "closed"


def cached_tables(session: Any) -> int:
    """How many tables Spark holds in its cache."""
    return int(session._jsparkSession.sharedState().cacheManager().numCachedEntries())


def test_memory_of_several_hosts_is_sparks_cache(several_hosts: sq.Cluster, tmp_path: Path) -> None:
    cluster = several_hosts
    session = session_of(cluster)
    plan = CASE.sharded(cluster, splits=3, to=3)
    expected = plan.collect(sort=True)
    dataset = plan.to_memory("counts")
    assert (dataset.path, dataset.rows) == (f"memory:{dataset.version}", expected.height)
    stored = plan.to_storage(tmp_path / "same")
    assert dataset.time_range == stored.time_range
    assert [file.rows for file in dataset.files] == [file.rows for file in stored.files]
    assert cached_tables(session) == 1
    read = cluster.dataset("counts")
    assert read.placement == plan.placement
    assert read.collect(sort=True).equals(expected)
    moved = read.redistribute().query(lambda s: s)
    assert "channel" not in moved.explain()  # the rows of each shard go to that shard again
    assert moved.collect(sort=True).equals(expected)
    assert read.to_spark().count() == expected.height
    forget_held(dataset.version)  # as another process finds it
    assert cluster.dataset("counts").collect(sort=True).equals(expected)
    assert [run.action for run in cluster.catalog.runs() if run.dataset] == ["to_memory", "to_storage", "recompute"]
    assert cached_tables(session) == 1
    cluster.remove("counts")
    assert cluster.datasets() == []
    assert cached_tables(session) == 0


def test_each_shard_in_the_cache_has_its_rows(several_hosts: sq.Cluster) -> None:
    frame = pl.DataFrame({"t": range(300_000), "k": [t % 5 for t in range(300_000)], "text": "a word"})
    frame = frame.with_columns(when=pl.col("t").cast(pl.Datetime("ns")), kind=pl.col("text").cast(pl.Categorical))
    several_hosts.from_frame(frame, start="t").rekey("k").redistribute().to_memory("rows")
    read = several_hosts.dataset("rows")
    assert read.placement is not None
    some = read.query(lambda s: s.where(sq.col("k") > 2).select("when").point_at_end()).collect()
    wanted = sq.from_frame(frame, start="t").where(sq.col("k") > 2).select("when").point_at_end()
    assert some.select("start", "end", "when").sort(pl.all()).equals(wanted.collect(sort=True))
    counts = read.query(lambda s: s.hopping_window(1_000, 100).aggregate(n=sq.count()))
    assert "channel" not in counts.explain()
    expected = sq.from_frame(frame, start="t").group_apply(
        "k", lambda s: s.hopping_window(1_000, 100).aggregate(n=sq.count())
    )
    assert counts.collect(sort=True).equals(expected.collect(sort=True))
    again = several_hosts.dataset("rows").reshard(2).query(lambda s: s.count()).redistribute(1)
    assert again.query(lambda s: s.aggregate(n=sq.sum("count"))).collect().height == 300_000


def test_each_answer_in_the_cache_is_one_of_its_own(several_hosts: sq.Cluster, tmp_path: Path) -> None:
    def made(name: str, value: int) -> list[int]:
        pl.DataFrame({"t": [1, 2], "k": [value, value]}).write_parquet(tmp_path / "in.parquet")
        rows = several_hosts.scan(tmp_path / "in.parquet", start="t").rekey("k").redistribute()
        rows.query(lambda s: s.aggregate(n=sq.sum("k"))).to_memory(name)
        return several_hosts.dataset(name).collect()["n"].to_list()

    # The same plan over a file that is as long as before.
    assert made("before", 1) == [1, 1]
    assert made("after", 2) == [2, 2]
    several_hosts.remove("after")
    assert cached_tables(session_of(several_hosts)) == 1
    assert several_hosts.dataset("before").collect()["n"].to_list() == [1, 1]


def test_filters_and_wide_numbers_of_rows_in_the_cache(several_hosts: sq.Cluster) -> None:
    wide = pl.Series("wide", [None, *(2**100 + row for row in range(9))], pl.Int128)
    frame = pl.DataFrame({"k": range(10), "wide": wide, "list": [[], [1], None, [2], []] * 2})
    several_hosts.from_frame(frame).rekey("k").redistribute().to_memory("rows")
    read = several_hosts.dataset("rows")
    assert read.collect().sort("k").equals(frame)
    assert read.redistribute(2).collect().sort("k").equals(frame)
    some = read.query(lambda s: s.where(sq.col("k") > 6))
    assert some.query(lambda s: s.select("wide")).collect().sort("k").equals(frame[7:].select("k", "wide"))
    # It is made from what it replaces.
    assert some.to_memory("rows", mode="overwrite").rows == 3
    assert several_hosts.dataset("rows").collect().sort("k").equals(frame[7:])


def test_shards_in_the_cache_may_be_read_as_many_files(
    several_hosts: sq.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"t": range(400_000), "k": [t % 3 for t in range(400_000)]})
    several_hosts.from_frame(frame, start="t").rekey("k").redistribute().to_memory("rows")
    monkeypatch.setattr("squill.runtime.spark.cache.FILE_BYTES", 1)
    counts = several_hosts.dataset("rows").query(lambda s: s.hopping_window(1_000, 100).aggregate(n=sq.count()))
    stream = sq.from_frame(frame, start="t")
    expected = stream.group_apply("k", lambda s: s.hopping_window(1_000, 100).aggregate(n=sq.count()))
    assert counts.collect(sort=True).equals(expected.collect(sort=True))


def test_empty_answers_in_the_cache(several_hosts: sq.Cluster) -> None:
    rows = several_hosts.from_frame({"t": [1, 2], "k": ["a", "b"]}, start="t").rekey("k").redistribute()
    assert rows.query(lambda s: s.where(sq.col("k") == "z")).to_memory("none").rows == 0
    assert several_hosts.dataset("none").collect().height == 0
    assert rows.query(lambda s: s.where(sq.col("k") == "a")).to_memory("one").rows == 1
    one = several_hosts.dataset("one")
    assert one.query(several_hosts.dataset("none"), lambda left, right: left.where_not_exists(right)).collect().height


def test_what_cannot_read_the_cache_gets_its_rows(several_hosts: sq.Cluster, tmp_path: Path) -> None:
    plan = CASE.sharded(several_hosts, splits=3, to=3)
    expected = plan.collect(sort=True)
    plan.to_memory("counts")
    *_, last = several_hosts.dataset("counts").progressive(sq.progress.hashed("k", 4))
    assert last.frame.height == expected.height
    kept = several_hosts.dataset("counts").to_storage(tmp_path / "state", keep_state=True)
    assert kept.rows <= expected.height
    with sq.local(cores=2, warehouse=tmp_path / "w") as local:
        assert local.dataset("counts").collect(sort=True).equals(expected)
    assert several_hosts.dataset("counts").collect(sort=True).equals(expected)


def test_failed_answer_leaves_nothing_in_the_cache(several_hosts: sq.Cluster) -> None:
    def fails(frame: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("not these rows")

    rows = several_hosts.from_frame({"t": [1, 2], "k": [1, 2]}, start="t")
    with pytest.raises(UserFunctionError, match=r"fragment 1, shard \d of 3, map_batches: .*not these rows"):
        rows.query(lambda s: s.map_batches(fails)).to_memory("rows")
    assert several_hosts.datasets() == []
    assert cached_tables(session_of(several_hosts)) == 0


def test_answer_of_a_plan_that_moves_through_the_shuffle_is_stored(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    with sq.spark(session_of(spark_cluster), machines=2, channel="shuffle", warehouse=tmp_path / "w") as cluster:
        plan = CASE.sharded(cluster)
        expected = plan.collect(sort=True)
        plan.to_storage(tmp_path / "out")
        assert pl.read_parquet(str(tmp_path / "out/**/*.parquet")).sort(pl.all()).equals(expected)
        assert cluster.scan(tmp_path / "out").collect(sort=True).equals(expected)
        assert pl.concat(plan.batches()).sort(pl.all()).equals(expected)
        assert plan.to_spark().count() == expected.height
