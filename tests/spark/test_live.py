"""The same live plans in Spark tasks."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.sharded import ShardedStream

pytestmark = pytest.mark.spark


def _windows(clicks: ShardedStream) -> ShardedStream:
    return clicks.rekey("k").redistribute().query(lambda s: s.hopping_window(50, 10).aggregate(n=sq.count()))


def _points(clicks: ShardedStream) -> ShardedStream:
    return clicks.query(lambda s: s.with_columns(t=sq.start()))


def test_a_folder_in_epochs_gives_the_answer_of_one_run(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(3)
    rows = pl.DataFrame({"t": rng.integers(0, 400, 300), "k": rng.integers(0, 6, 300)}).sort("t")
    for number, part in enumerate(rows.iter_slices(100)):
        part.write_parquet(folder / f"{number}.parquet")

    def start(*, complete: bool) -> pl.DataFrame:
        clicks = spark_cluster.stream(folder, start="t", files_per_epoch=2)
        query = _windows(clicks).start(
            str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True, complete=complete
        )
        query.wait()
        return query.stable().frame

    first = start(complete=False)
    later = rows.with_columns(pl.col("t") + 400)
    later.write_parquet(folder / "later.parquet")
    whole = start(complete=True)
    with sq.local(cores=1) as local:
        wanted = _windows(local.from_frame(pl.concat([rows, later]), start="t")).collect(sort=True)
    assert 0 < first.height < whole.height
    assert whole.sort(whole.columns).equals(wanted)


def test_columns_that_nobody_reads_are_not_sent(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    rows = pl.select(t=pl.int_range(60)).with_columns(k=sq.col("t") % 4, unread=pl.lit("a"), kept=sq.col("t") % 3)

    def counts(clicks: ShardedStream) -> ShardedStream:
        return _windows(clicks.query(lambda s: s.where(sq.col("kept") == 1)))

    frame = spark_cluster.from_frame(rows, start="t")
    assert counts(frame).to_storage(tmp_path / "state", keep_state=True).rows

    def read(_: int, offset: int | None) -> Iterator[tuple[pl.DataFrame, int]]:
        if offset is None:
            yield rows, rows.height

    found: list[pl.DataFrame] = []
    parts = spark_cluster.stream(sq.partitions(1, read), start="t", schema=rows.schema)
    counts(parts).start(lambda given, _: found.append(given), checkpoint=tmp_path / "ck", until_now=True).wait()
    assert pl.concat(found).height == counts(frame).collect().height


def test_a_query_goes_on_from_a_run_over_stored_rows(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    rows = pl.DataFrame({"t": np.sort(rng.integers(0, 400, 200)), "k": rng.integers(0, 9, 200)})
    for name, part in (("history", rows[:120]), ("new", rows[120:])):
        (tmp_path / name).mkdir()
        part.write_parquet(tmp_path / name / "a.parquet")
    history = spark_cluster.scan(tmp_path / "history", start="t")
    dataset = _windows(history).to_storage(tmp_path / "ds", keep_state=True)
    found = []
    with sq.local(cores=1) as local:
        for place, cluster in (("spark", spark_cluster), ("local", local)):
            live = _windows(cluster.stream(tmp_path / "new", start="t")).start(
                str(tmp_path / place), checkpoint=tmp_path / f"ck-{place}", bootstrap=dataset, until_now=True
            )
            live.wait()
            found.append(pl.concat([*map(pl.read_parquet, dataset.paths), live.stable().frame]))
        wanted = _windows(local.from_frame(rows, start="t")).collect(sort=True)
    assert 0 < dataset.rows < wanted.height
    assert [frame.sort(frame.columns).equals(wanted) for frame in found] == [True, True]


def test_a_table_is_read_again(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    given: list[pl.DataFrame] = []
    for number, name in enumerate(["a", "A"]):
        pl.DataFrame({"k": [1, 2], "name": [name, "b"]}).write_parquet(tmp_path / "names.parquet")
        seen = pl.DataFrame({"t": [10 * number, 10 * number + 5], "k": [1, 2]})
        seen.write_parquet(tmp_path / "in" / f"{number}.parquet")
        clicks = spark_cluster.stream(tmp_path / "in", start="t").rekey("k").redistribute()
        table = spark_cluster.scan(tmp_path / "names.parquet", refresh="0s").rekey("k").redistribute()
        query = clicks.query(table, lambda s, r: s.with_duration(3).join(r))
        query.start(given.append, checkpoint=tmp_path / "ck", until_now=True, complete=name == "A").wait()
        assert number or pl.concat(given).rows() == [(0, 3, 1, "a")]  # it holds nothing back
    assert sorted(pl.concat(given).rows()) == [(0, 3, 1, "a"), (5, 8, 2, "b"), (10, 13, 1, "A"), (15, 18, 2, "b")]


def test_a_streaming_dataframe_gives_the_answer_of_one_run(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pl.DataFrame({"t": range(60), "k": [n % 3 for n in range(60)], "unused": "x"})
    for number, part in enumerate(rows.iter_slices(20)):
        part.write_parquet(folder / f"{number}.parquet")
    table = spark_cluster.runtime.session.readStream.schema("t long, k long, unused string").parquet(str(folder))
    given: list[pl.DataFrame] = []

    def start(*, complete: bool) -> None:
        clicks = spark_cluster.stream(table, start="t")
        _windows(clicks).start(given.append, checkpoint=tmp_path / "ck", until_now=True, complete=complete).wait()

    start(complete=False)
    later = rows.with_columns(pl.col("t") + 60)
    later.write_parquet(folder / "later.parquet")
    start(complete=True)
    with sq.local(cores=1) as local:
        wanted = _windows(local.from_frame(pl.concat([rows, later]), start="t")).collect(sort=True)
    whole = pl.concat(given)
    assert whole.sort(whole.columns).equals(wanted)
    assert not spark_cluster.runtime.session.streams.active


def test_a_stop_while_a_batch_waits_is_quiet(
    spark_cluster: sq.Cluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        pl.DataFrame({"t": [10 * number, 10 * number + 5], "k": [1, 2]}).write_parquet(folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (number, number))  # Spark takes the oldest first
    reader = spark_cluster.runtime.session.readStream.schema("t long, k long").option("maxFilesPerTrigger", 1)
    table = reader.parquet(str(folder))
    given: list[pl.DataFrame] = []
    is_called, may_return = threading.Event(), threading.Event()

    def slow(frame: pl.DataFrame) -> None:
        given.append(frame)
        is_called.set()
        may_return.wait()

    query = _points(spark_cluster.stream(table, start="t")).start(slow, checkpoint=tmp_path / "ck", every="1ms")
    assert is_called.wait(300)
    # The next batch waits to be taken, and nobody will.
    while not (tmp_path / "ck" / "tables" / "0" / "batches" / "1").is_dir():
        time.sleep(0.01)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    may_return.set()
    stopping.join()
    assert query.status() == "stopped"
    captured = capfd.readouterr()
    assert "ERROR" not in captured.err + captured.out
    assert not caplog.records
    assert not spark_cluster.runtime.session.streams.active
    again = _points(spark_cluster.stream(table, start="t"))
    again.start(given.append, checkpoint=tmp_path / "ck", until_now=True).wait()
    assert sorted(pl.concat(given)["t"].to_list()) == [0, 5, 10, 15]


def test_what_is_no_live_source_is_refused(spark_cluster: sq.Cluster) -> None:
    with pytest.raises(sq.errors.PlanError, match="DataFrame is no live source"):
        spark_cluster.stream(spark_cluster.runtime.session.range(3), start="id")
    pushed = sq.source({"t": pl.Int64}, start="t")
    with pytest.raises(sq.errors.PlanError, match="Spark's tasks cannot read them"):
        spark_cluster.stream(pushed).query(lambda s: s.count()).start(print)


@pytest.mark.filterwarnings("ignore:epoch 2 is tried again")
def test_an_epoch_in_which_a_worker_dies_is_run_again(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    folder, mark = tmp_path / "in", tmp_path / "died"
    folder.mkdir()
    rows = pl.DataFrame({"t": range(90), "k": [n % 3 for n in range(90)]})
    for number, part in enumerate(rows.iter_slices(30)):
        part.write_parquet(folder / f"{number}.parquet")

    def die_once(frame: pl.DataFrame) -> pl.DataFrame:
        if 40 in frame["at"] and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return frame

    def marked(clicks: sq.ShardedStream) -> sq.ShardedStream:
        placed = clicks.rekey("k").redistribute()
        return placed.query(lambda s: s.with_columns(at=sq.start()).map_batches(die_once).tumbling_window(20).count())

    clicks = spark_cluster.stream(folder, start="t", files_per_epoch=1)
    query = marked(clicks).start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True)
    query.wait()
    assert mark.exists()
    with sq.local(cores=1) as local:
        wanted = marked(local.from_frame(rows, start="t")).collect(sort=True)
    found = query.stable().frame
    assert found.sort(found.columns).equals(wanted)


def test_a_query_that_is_refused_leaves_no_folder(
    spark_cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pushed = sq.source({"t": pl.Int64}, start="t")
    with pytest.raises(sq.errors.PlanError, match="Spark's tasks cannot read them"):
        spark_cluster.stream(pushed).query(lambda s: s.count()).start(print)
    assert list(tmp_path.iterdir()) == []


def test_on_more_shards_the_states_are_divided(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pl.DataFrame({"t": range(120), "k": [n % 7 for n in range(120)]})
    for number, shards in enumerate((2, 4)):
        rows.slice(60 * number, 60).write_parquet(folder / f"{number}.parquet")
        clicks = spark_cluster.stream(folder, start="t", shards=shards)
        query = _windows(clicks).start(
            str(tmp_path / "out"), checkpoint=tmp_path / "ck", until_now=True, complete=bool(number)
        )
        query.wait()
        assert query.progress().shards == shards
    with sq.local(cores=1) as local:
        wanted = _windows(local.from_frame(rows, start="t")).collect(sort=True)
    found = query.stable().frame
    assert found.sort(found.columns).equals(wanted)
