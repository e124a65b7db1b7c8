from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine.row_groups import row_groups
from squill.plan.fragments import fragments_of, sources_of
from squill.runtime import estimate
from squill.runtime.estimate import Size, known_rows, sizes_of


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2, machines=2) as started:
        yield started


def sent(stream: sq.ShardedStream) -> list[Size | None]:
    """Return the sizes of all channels, and last that of the answer."""
    plan = fragments_of(stream.plan)
    size = sizes_of(plan)
    return [*(size(channel) for channel in plan.channels.values()), size(plan.answer)]


def rows(stream: sq.ShardedStream) -> list[float | None]:
    return [None if size is None else round(size.rows, 3) for size in sent(stream)]


FRAME = pl.DataFrame({"t": range(900), "k": [n % 7 for n in range(900)], "x": [1.5] * 900})


def test_explain_marks_sources_channels_and_the_answer(cluster: sq.Cluster) -> None:
    keyed = cluster.from_frame(FRAME, start="t").query(lambda s: s.where(sq.col("x") > 1).select("k")).rekey("k")
    assert keyed.redistribute().query(lambda g: g.count()).explain().splitlines() == [
        "fragment 1 on 2 machines of 2 shards",
        "  select(columns=[k])  -> k: Int64  [Int64; ends known, duration 1]",
        """    frame_source(frame, start=t, 2 columns, only [(col("x")) > (dyn int: 1)])  -> k: Int64, x: Float64  \
[Int64; ends known, duration 1]  ~300 rows, ~21.6 kB""",
        "  -> channel 1: redistribute by k to 2 machines of 2 shards, ~300 rows, ~7.2 kB",
        "fragment 2 on 2 machines of 2 shards",
        "  aggregate(keys=[k], count=count())  -> k: Int64, count: Int64  [Int64; edges]",
        "    shard_input(rows of fragment 1, 1 columns)  -> k: Int64  [Int64; ends known, duration 1]",
        "  -> the answer, ~300 rows, ~9.6 kB",
    ]


def test_rules_of_operators(cluster: sq.Cluster) -> None:
    frame = cluster.from_frame(FRAME, start="t").rekey("k")
    small = cluster.from_frame(FRAME.head(9), start="t").rekey("k")
    mapped = frame.query(lambda s: s.map_batches(lambda rows: rows, schema=dict(FRAME.drop("t").schema)))
    assert rows(mapped.query(lambda s: s.where(sq.col("x") > 1))) == [300], "a filter keeps a third"
    assert rows(frame.union(small)) == [909]
    assert rows(frame.redistribute().query(small.redistribute(), lambda a, b: a.join(b))) == [900, 9, 900]
    assert rows(frame.query(small.broadcast(), lambda a, b: a.join(b))) == [36, 900], "a copy for each shard"
    assert rows(small.broadcast(scope="global")) == [18, 18]
    assert rows(cluster.sharded(sq.from_frame(FRAME).aggregate(n=sq.count()))) == [1, 1]


def test_text_is_as_long_as_in_the_frame(cluster: sq.Cluster) -> None:
    frame = pl.DataFrame({"t": range(100), "long": ["x" * 1_000] * 100, "short": ["y"] * 100})
    moved = cluster.from_frame(frame, start="t").rekey("short").redistribute()
    (size, _) = sent(moved)
    assert size is not None
    assert size.bytes == pytest.approx(100 * (16 + 1_000 + 1), rel=0.1)
    renamed = cluster.from_frame(frame, start="t").query(lambda s: s.select(other="long")).reshard()
    assert sent(renamed)[0] == Size(rows=100, bytes=100 * (16 + 16))


def test_parquet_counts_row_groups_and_columns_that_are_read(cluster: sq.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    FRAME.with_columns(wide=pl.col("t").hash(1)).write_parquet(path, row_group_size=100)
    everything = cluster.scan(path, start="t", keep_time=True)
    narrow = everything.query(lambda s: s.select("k"))
    late = everything.query(lambda s: s.where(sq.col("t") >= 800))

    def source(stream: sq.ShardedStream) -> Size:
        plan = fragments_of(stream.plan)
        size = sizes_of(plan)(sources_of(plan.answer.root)[0])
        assert size is not None
        return size

    assert source(everything).rows == source(narrow).rows == 900
    assert source(narrow).bytes < source(everything).bytes / 2
    assert source(late).rows == pytest.approx(100 / 3), "one row group, of which the filter keeps a third"
    assert source(late).bytes < source(everything).bytes / 6


@pytest.mark.parametrize(("suffix", "low", "high"), [("arrow", 900, 900), ("csv", 300, 1_800), ("ndjson", 300, 1_800)])
def test_other_files_are_counted_or_guessed(
    cluster: sq.Cluster, tmp_path: Path, suffix: str, low: int, high: int
) -> None:
    for part in range(2):
        half = FRAME[part * 450 : part * 450 + 450]
        path = tmp_path / f"{part}.{suffix}"
        if suffix == "arrow":
            half.write_ipc(path)
        elif suffix == "csv":
            half.write_csv(path)
        else:
            half.write_ndjson(path)
    (found,) = rows(cluster.scan(tmp_path, start="t"))
    assert found is not None
    assert low <= found <= high


def test_of_many_files_a_sample_is_looked_at(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(9):
        FRAME[part * 100 : part * 100 + 100].write_parquet(tmp_path / f"{part}.parquet")
    looked: list[str] = []

    def look(path: str, *rest: Any) -> Any:
        looked.append(path)
        return row_groups(path, *rest)

    monkeypatch.setattr(estimate, "SAMPLED_FILES", 3)
    monkeypatch.setattr(estimate, "row_groups", look)
    assert rows(cluster.scan(tmp_path, start="t")) == [900]
    assert [Path(path).name for path in looked] == ["0.parquet", "3.parquet", "6.parquet"]


def test_broken_file_is_guessed_and_said_when_it_is_read(cluster: sq.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    FRAME.write_parquet(path)
    plan = cluster.scan(path, start="t")
    path.write_bytes(b"x" * 2_400)
    assert rows(plan) == [100]


def test_rows_of_another_cluster_are_estimated_there(cluster: sq.Cluster) -> None:
    with sq.local(cores=2) as other:
        there = cluster.from_frame(FRAME, start="t").rekey("k")
        assert rows(there.redistribute(to=other)) == [900, 900]


def test_known_rows_are_those_that_nobody_filters(cluster: sq.Cluster, tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "a.parquet")
    FRAME.write_csv(tmp_path / "a.csv")
    frame = cluster.from_frame(FRAME, start="t")
    scanned = cluster.scan(tmp_path / "a.parquet", start="t")
    assert known_rows(fragments_of(frame.union(scanned).plan)) == 1_800
    assert known_rows(fragments_of(scanned.query(lambda s: s.where(sq.col("k") > 1)).plan)) is None
    assert known_rows(fragments_of(cluster.scan(tmp_path / "a.csv", start="t").plan)) is None
