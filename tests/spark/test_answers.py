"""The same plans on Spark give the same answers as in-process."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, NumericOverflowError, PlanError, UserFunctionError
from squill.plan.fragments import fragments_of
from squill.runtime.answer import CollectAnswer
from squill.runtime.progress import Progress
from squill.runtime.spark.runtime import SparkRuntime
from squill.testing import assert_same_events, reference
from tests.spark.shared import runtime_of, session_of
from tests.unit.runtime.cases import CASES, Case

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_two_machines_give_the_answer_of_one_process(spark_cluster: sq.Cluster, case: Case) -> None:
    assert_same_events(case.sharded(spark_cluster).collect(), case.in_process(), scale=1e4)


@pytest.mark.parametrize(("splits", "to"), [(1, 1), (5, 2), (2, 7)])
def test_more_shards_than_machines_run_in_waves(spark_cluster: sq.Cluster, splits: int, to: int) -> None:
    case = CASES["text keys with nulls, milliseconds"]
    assert_same_events(case.sharded(spark_cluster, splits=splits, to=to).collect(), case.in_process())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_files_give_the_same_answer(spark_cluster: sq.Cluster, compression: str) -> None:
    cluster = sq.spark(session_of(spark_cluster), machines=3, compression=compression)
    case = CASES["composite keys with nulls, dates"]
    assert_same_events(case.sharded(cluster).collect(), case.in_process())


def test_several_shards_of_a_machine_share_its_task(spark_cluster: sq.Cluster) -> None:
    cluster = sq.Cluster(two_by_two(spark_cluster))
    assert cluster.shards == 4
    case = CASES["integer keys, microseconds in a zone"]
    assert_same_events(case.sharded(cluster).collect(), case.in_process())


def two_by_two(cluster: sq.Cluster) -> SparkRuntime:
    """Two shards per task, on a session whose tasks have one core: slower, and the same answers."""
    shared = runtime_of(cluster)
    return SparkRuntime(shared.session, machines=2, cores=2, folder=shared.folder)


def test_folders_that_spark_partitions_by_are_columns(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    rows = [(t, year, city) for t in range(6) for year, city in ((2024, "São Paulo/1"), (2025, None))]
    frame = session_of(spark_cluster).createDataFrame(rows, "t bigint, year int, city string")
    frame.write.partitionBy("year", "city").parquet(str(tmp_path / "out"))

    def late(s: sq.Stream) -> sq.Stream:
        return s.where(sq.col("year") == 2024).with_duration(3).aggregate(n=sq.count(), city=sq.max("city"))

    stream = sq.scan(tmp_path / "out", start="t")
    assert stream.collect().select("start", "year", "city").sort("start", "year").rows() == rows
    found = spark_cluster.scan(tmp_path / "out", start="t")
    assert_same_events(found.collect(), stream.collect())
    counted = spark_cluster.scan(tmp_path / "out", start="t", shards=1).query(late)
    assert_same_events(counted.collect(), reference.run(late(stream)))


def test_empty_frame_gives_an_empty_answer(spark_cluster: sq.Cluster) -> None:
    empty = pl.DataFrame(schema={"t": pl.Datetime("us", "UTC"), "k": pl.Int64()})
    found = spark_cluster.from_frame(empty, start="t").rekey("k").redistribute().query(lambda g: g.count()).collect()
    assert found.is_empty()
    assert found.schema["start"] == pl.Datetime("us", "UTC")


def test_user_error_names_fragment_shard_and_operator(spark_cluster: sq.Cluster) -> None:
    frame = {"t": list(range(100)), "k": [1] * 100, "x": [2**62] * 100}
    keyed = spark_cluster.from_frame(frame, start="t").rekey("k").redistribute()
    with pytest.raises(NumericOverflowError, match=r"^fragment 2, shard \d of 2, aggregate: "):
        keyed.query(lambda s: s.with_duration(50).sum("x")).collect()


@pytest.mark.parametrize("channel", ["files", "shuffle"])
def test_error_that_may_pass_names_the_operator_too(spark_cluster: sq.Cluster, channel: str) -> None:
    keyed = spark_cluster.from_frame({"t": [1, 2], "k": [1, 1]}, start="t").rekey("k").redistribute(channel=channel)
    failing = keyed.query(lambda g: g.snapshot_apply(lambda alive: {"n": 1 // 0}, {"n": pl.Int64}))
    with pytest.raises(UserFunctionError, match=r"^fragment 2, shard \d of 2, snapshot_apply: .*the first row was"):
        failing.collect()


def test_function_that_cannot_be_sent_is_told_with_its_operator(spark_cluster: sq.Cluster) -> None:
    lock = threading.Lock()
    rows = spark_cluster.from_frame({"t": [1, 2]}, start="t")
    with pytest.raises(PlanError, match=r"^map_batches: the function <lambda> \(line \d+ of .*lock"):
        rows.query(lambda s: s.map_batches(lambda frame: (lock, frame)[1])).collect()


@pytest.mark.parametrize("channel", ["files", "shuffle"])
def test_function_that_holds_the_cluster_is_refused(
    spark_cluster: sq.Cluster, spark_folder: Path, channel: str
) -> None:
    rows = spark_cluster.from_frame({"t": [1, 2], "k": [1, 2]}, start="t")
    plan = rows.query(lambda s: s.map_batches(lambda frame: frame.head(spark_cluster.shards))).rekey("k")
    with pytest.raises(PlanError, match=r"the function <lambda> \(line \d+ of .*cannot be sent to other processes"):
        plan.redistribute(channel=channel).collect()
    assert list(spark_folder.iterdir()) == []


def test_bad_row_names_fragment_and_shard(spark_cluster: sq.Cluster) -> None:
    source = spark_cluster.from_frame({"t": [1, 2, 3, None]}, start="t")
    with pytest.raises(InputError, match=r"^fragment 1, shard 1 of 2: .*null"):
        source.collect()


def test_progress_is_told_from_the_files(spark_cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squill.runtime.progress.POLL_SECONDS", 0.001)
    seen: list[Progress] = []
    case = CASES["integer keys, microseconds in a zone"]
    plan = case.sharded(spark_cluster).plan
    spark_cluster.runtime.run(fragments_of(plan), CollectAnswer(), seen.append)
    assert {(item.stage, item.stages, item.shards) for item in seen} == {(1, 2, 2), (2, 2, 2)}
    assert all(0 <= item.done <= 2 for item in seen)
    assert seen[0].rows == 0
    in_the_end = {item.rows for item in seen if item.stage == 2}
    assert len(in_the_end) == 1, "only the first stage reads"
    assert 0 < in_the_end.pop() <= case.frame.height  # type: ignore[operator]


def test_progress_through_the_shuffle_is_told_by_spark(
    spark_cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squill.runtime.progress.POLL_SECONDS", 0.001)
    seen: list[Progress] = []
    cluster = sq.spark(session_of(spark_cluster), machines=2, channel="shuffle")
    case = CASES["integer keys, microseconds in a zone"]
    plan = case.sharded(cluster).plan
    cluster.runtime.run(fragments_of(plan), CollectAnswer(), seen.append)
    assert {(item.stage, item.stages, item.shards) for item in seen} == {(1, 2, 2), (2, 2, 2)}
    assert [item.stage for item in seen] == sorted(item.stage for item in seen)
    assert seen[0].rows == 0
    read = {item.rows for item in seen if item.stage == 2}
    assert len(read) == 1, "only the first stage reads"
    assert 0 < read.pop() <= case.frame.height  # type: ignore[operator]


@pytest.mark.parametrize("channel", ["files", "shuffle"])
def test_bar_on_a_terminal(spark_cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch, channel: str) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("SQUILL_PROGRESS", "on")
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr("squill.runtime.progress.PATIENCE_SECONDS", 0)
    monkeypatch.setattr("squill.runtime.progress.POLL_SECONDS", 0.01)
    runtime = runtime_of(spark_cluster)
    cluster = sq.spark(runtime.session, machines=2, folder=runtime.folder, channel=channel)
    CASES["integer keys, microseconds in a zone"].sharded(cluster).collect()
    written = terminal.getvalue()
    assert "stage 2 of 2" in written
    assert "of 2 shards, " in written
    assert " rows" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1, "the cursor is there again"


def test_tasks_read_their_own_files(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    case = CASES["integer keys, microseconds in a zone"]
    for number, part in enumerate(case.frame.iter_slices(700)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    source = spark_cluster.scan(tmp_path, start="t").query(case.before)
    assert_same_events(source.rekey("k").redistribute(3).query(case.query).collect(), case.in_process())
