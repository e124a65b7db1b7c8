"""The plans of the Quill paper on machines and local shards, over both channels: the same answer as in-process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pyspark.errors import PySparkException

import squill as sq
from squill.errors import ClusterError, NumericOverflowError, PlanError, ShardError
from squill.runtime.spark.jobs import CANNOT_GO_BACK, Jobs
from squill.runtime.spark.runtime import SparkRuntime
from squill.testing import assert_same_events
from tests.spark.shared import runtime_of

pytestmark = pytest.mark.spark

ROWS = 4_000
RANDOM = np.random.default_rng(11)
CLICKS = pl.DataFrame(
    {"t": RANDOM.integers(0, 900, ROWS), "ad": RANDOM.integers(0, 40, ROWS), "price": RANDOM.integers(0, 9, ROWS)}
)
ADS = pl.DataFrame({"ad": np.arange(0, 40, 3), "name": [f"ad {number}" for number in range(0, 40, 3)]})

SIZES = [(1, 1), (4, 1), (2, 2)]
CHANNELS = ["files", "shuffle"]


def cluster_of(cluster: sq.Cluster, size: tuple[int, int], channel: str | None, folder: Path | None) -> sq.Cluster:
    """A cluster on the shared session; its tasks have one core, so that several shards share it: the same answers."""
    machines, cores = size
    session = runtime_of(cluster).session
    return sq.Cluster(SparkRuntime(session, machines=machines, cores=cores, folder=folder, channel=channel))


def counted(group: sq.Stream) -> sq.Stream:
    return group.hopping_window(100, 10).aggregate(n=sq.count(), sold=sq.sum("price"))


def summed(group: sq.Stream) -> sq.Stream:
    return group.aggregate(n=sq.sum("n"), sold=sq.sum("sold"))


Plan = Callable[[sq.ShardedStream, sq.ShardedStream], sq.ShardedStream]
AGGREGATES: dict[str, Plan] = {
    "a": lambda clicks, _: clicks.redistribute().query(counted),
    "b": lambda clicks, _: clicks.query(counted).redistribute().query(summed),
    "c": lambda clicks, _: clicks.query(counted).redistribute(scope="local").query(summed).redistribute().query(summed),
    "d": lambda clicks, _: clicks.redistribute(scope="local").query(counted).redistribute(scope="global").query(summed),
}
JOINS: dict[str, Plan] = {
    "both redistributed": lambda clicks, ads: clicks.redistribute().query(ads.redistribute(), _join),
    "broadcast": lambda clicks, ads: clicks.query(ads.broadcast(), _join),
    "a copy per machine": lambda clicks, ads: clicks.redistribute(scope="local").query(
        ads.broadcast(scope="global").redistribute(scope="local"), _join
    ),
}


def _join(left: sq.Stream, right: sq.Stream) -> sq.Stream:
    return left.join(right)


def expected(name: str) -> pl.DataFrame:
    clicks = sq.from_frame(CLICKS, start="t")
    if name in AGGREGATES:
        return clicks.group_apply("ad", counted).collect()
    return clicks.join(sq.from_frame(ADS), on="ad").collect()


@pytest.mark.parametrize("name", [*AGGREGATES, *JOINS])
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_plans_of_the_paper_agree(
    spark_cluster: sq.Cluster, tmp_path: Path, size: tuple[int, int], channel: str, name: str
) -> None:
    cluster = cluster_of(spark_cluster, size, channel, tmp_path if channel == "files" else None)
    clicks = cluster.from_frame(CLICKS, start="t").rekey("ad")
    ads = cluster.from_frame(ADS).rekey("ad")
    assert_same_events({**AGGREGATES, **JOINS}[name](clicks, ads).collect(), expected(name))
    assert list(tmp_path.iterdir()) == []


MIXED: dict[str, Plan] = {
    "files, then the shuffle": lambda clicks, _: (
        clicks.reshard(3, channel="files").redistribute(4, channel="shuffle").query(counted)
    ),
    "the shuffle, then files": lambda clicks, _: (
        clicks.query(counted).redistribute(scope="global", channel="shuffle").query(summed).redistribute().query(summed)
    ),
    "inside a machine, then the shuffle": lambda clicks, _: (
        clicks.redistribute(scope="local").query(counted).redistribute(channel="shuffle").query(summed)
    ),
    "two inputs": lambda clicks, ads: clicks.redistribute().query(ads.redistribute(channel="shuffle"), _join),
    "two inputs, the other way": lambda clicks, ads: clicks.redistribute(channel="shuffle").query(
        ads.redistribute(channel="files"), _join
    ),
    "a copy by files": lambda clicks, ads: clicks.reshard(3, channel="shuffle").query(
        ads.broadcast(3, channel="files"), _join
    ),
    "rows of two stages": lambda clicks, ads: (
        clicks.redistribute(channel="shuffle")
        .query(ads.reshard(channel="shuffle").redistribute(channel="files"), _join)
        .redistribute(2, channel="files")
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_every_movement_has_a_channel_of_its_own(spark_cluster: sq.Cluster, tmp_path: Path, name: str) -> None:
    cluster = cluster_of(spark_cluster, (2, 2), "files", tmp_path)
    clicks = cluster.from_frame(CLICKS, start="t").rekey("ad")
    ads = cluster.from_frame(ADS).rekey("ad")
    found = MIXED[name](clicks, ads)
    assert_same_events(found.collect(), expected("a" if "n" in found.schema else "broadcast"))
    assert list(tmp_path.iterdir()) == []


def test_rows_by_files_and_through_the_shuffle_at_once(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    """Of two ways of the same rows one leaves files; numbers that Arrow has not go either way."""

    def with_files(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(files=pl.lit(len(list(tmp_path.rglob("t*.arrow")))))

    cluster = cluster_of(spark_cluster, (2, 1), "shuffle", tmp_path)
    big = CLICKS.with_columns(big=pl.col("price").cast(pl.Int128) * 10**30)
    rows = cluster.from_frame(big, start="t").rekey("ad")
    both = rows.redistribute(channel="files").union(rows.redistribute(3, channel="shuffle").reshard(2))
    found = both.query(lambda s: s.map_batches(with_files, schema={**both.schema, "files": pl.Int32})).collect()
    assert found["files"].unique().to_list() == [2], "one of each sender"
    some = sq.from_frame(big, start="t")
    assert_same_events(found.drop("files"), some.union(some).collect())
    with pytest.raises(PlanError, match="to_spark: the column 'big' is Int128"):
        both.to_spark()
    assert both.query(lambda s: s.drop("big")).to_spark().count() == 2 * ROWS
    assert list(tmp_path.iterdir()) == []


def test_files_need_a_folder(spark_cluster: sq.Cluster) -> None:
    rows = cluster_of(spark_cluster, (2, 1), None, None).from_frame(CLICKS, start="t").rekey("ad")
    with pytest.raises(ClusterError, match="redistribute: channel='files' needs a folder that all machines"):
        rows.redistribute(channel="files")


def test_other_movements_and_a_stream_sent_two_ways(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    for channel in CHANNELS:
        cluster = cluster_of(spark_cluster, (3, 1), channel, tmp_path)
        rows = cluster.from_frame(CLICKS, start="t").query(lambda s: s.where(sq.col("price") > 2))
        both = rows.reshard(2).union(rows.multicast(sq.col("ad") % 2, to=2)).collect()
        some = sq.from_frame(CLICKS, start="t").where(sq.col("price") > 2)
        assert_same_events(both, some.union(some).collect())


def test_rows_move_from_spark_to_threads_and_back(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    tasks = cluster_of(spark_cluster, (2, 1), None, tmp_path)
    with sq.local(cores=2) as threads:
        reduced = tasks.from_frame(CLICKS, start="t").rekey("ad").query(counted).redistribute(to=threads).query(summed)
        assert reduced.layout.shards == 2
        assert_same_events(reduced.collect(), expected("a"))
        back = threads.from_frame(CLICKS, start="t").rekey("ad").redistribute(to=tasks).query(counted)
        assert_same_events(back.collect(), expected("a"))
        assert back.to_spark().count() == expected("a").height
    assert list(tmp_path.iterdir()) == []


def test_tasks_read_files_and_send_them_through_the_shuffle(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    for number, part in enumerate(CLICKS.iter_slices(900)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    cluster = cluster_of(spark_cluster, (2, 1), None, None)
    clicks = cluster.scan(tmp_path, start="t").rekey("ad")
    assert_same_events(clicks.redistribute(3).query(counted).collect(), expected("a"))


def test_a_job_that_spark_cannot_take_back_is_run_again(
    spark_cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an executor is lost late Spark does not make its rows again, as part of the answer is there already."""
    reads = []
    read = Jobs.read

    def failing(self: Jobs, table: Any, reader: Any) -> Iterator[Any]:
        reads.append(table)
        items = read(self, table, reader)
        if len(reads) == 1:
            yield next(items)
            list(items)
            raise PySparkException(f"Job aborted: A {CANNOT_GO_BACK} was failed and retried.")
        yield from items

    monkeypatch.setattr(Jobs, "read", failing)
    rows = cluster_of(spark_cluster, (2, 1), "shuffle", None).from_frame({"x": list(range(100))})
    run = rows.rekey("x").redistribute().query(lambda s: s.aggregate(n=sq.count())).run()
    assert len(reads) == 2
    assert sorted(run.frame["x"].to_list()) == list(range(100))
    assert sum(work.rows_in for work in run.report().works if work.fragment == 1) == 100


def test_error_crosses_the_shuffle_with_its_place(spark_cluster: sq.Cluster) -> None:
    frame = {"t": list(range(100)), "k": [1] * 100, "x": [2**62] * 100}
    cluster = cluster_of(spark_cluster, (2, 1), "shuffle", None)
    keyed = cluster.from_frame(frame, start="t").rekey("k").redistribute()
    with pytest.raises(NumericOverflowError, match=r"^fragment 2, shard \d of 2, aggregate: "):
        keyed.query(lambda s: s.with_duration(50).sum("x")).collect()


def test_error_that_may_pass_is_tried_again_and_then_raised(spark_cluster: sq.Cluster) -> None:
    def fail(frame: pl.DataFrame) -> pl.DataFrame:
        raise ConnectionError("the service is away")

    cluster = cluster_of(spark_cluster, (2, 1), "shuffle", None)
    rows = cluster.from_frame(CLICKS, start="t").query(lambda s: s.map_batches(fail))
    with pytest.raises(Exception, match=r"^fragment 1, shard \d of 2.*the service is away") as caught:
        rows.rekey("ad").redistribute().collect()
    assert not isinstance(caught.value, ShardError)


@pytest.mark.parametrize("channel", CHANNELS)
def test_report_has_every_shard_of_every_fragment(spark_cluster: sq.Cluster, tmp_path: Path, channel: str) -> None:
    cluster = cluster_of(spark_cluster, (2, 1), channel, tmp_path)
    run = cluster.from_frame(CLICKS, start="t").rekey("ad").redistribute().query(counted).run()
    assert_same_events(run.frame, expected("a"))
    report = run.report()
    assert [(work.fragment, work.shard) for work in report.works] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert report.by_fragment["rows_in"].to_list() == [ROWS, ROWS]
    assert report.by_fragment["bytes_out"][0] > ROWS
    assert report.by_fragment["rows_out"][1] == run.frame.height
    assert report.by_fragment["bytes_out"][1] > run.frame.height


@pytest.mark.parametrize("channel", CHANNELS)
def test_peak_memory_is_that_of_the_run_and_not_of_those_before(
    spark_cluster: sq.Cluster, tmp_path: Path, channel: str
) -> None:
    megabytes = 400

    def hold(frame: pl.DataFrame) -> pl.DataFrame:
        import mmap

        with mmap.mmap(-1, megabytes << 20) as held:
            for place in range(0, len(held), mmap.PAGESIZE):
                held[place] = 1
        return frame

    rows = cluster_of(spark_cluster, (2, 1), channel, tmp_path).from_frame({"x": [1, 2]}).rekey("x")
    large = rows.query(lambda s: s.map_batches(hold)).redistribute().run().report()
    small = rows.redistribute().run().report()
    peaks = [max(work.memory for work in report.works) for report in (large, small)]
    assert peaks[0] - peaks[1] > (megabytes << 20) // 2


@pytest.mark.parametrize("channel", CHANNELS)
def test_rows_of_a_scan_are_all_there_and_counted(spark_cluster: sq.Cluster, tmp_path: Path, channel: str) -> None:
    cluster = cluster_of(spark_cluster, (2, 1), channel, tmp_path)
    rows = pl.DataFrame({"t": range(200_000), "x": [number % 7 for number in range(200_000)]})
    run = cluster.from_frame(rows, start="t").query(lambda s: s.where(sq.col("x") > 2)).run()
    assert_same_events(run.frame, sq.from_frame(rows, start="t").where(sq.col("x") > 2).collect())
    assert run.report().by_fragment["rows_out"].to_list() == [run.frame.height]
    nothing = cluster.from_frame(rows.head(0), start="t").query(lambda s: s.where(sq.col("x") > 2))
    assert nothing.collect().height == 0
