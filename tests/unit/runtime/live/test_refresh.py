"""Stored tables beside live inputs that are read again."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import DurationError, PlanError, SchemaChangedError
from squill.sharded import ShardedStream
from squill.testing import LiveTest, ScriptedFailure, scripted

SCHEMA = {"t": pl.Int64, "k": pl.Int64}


def write(path: Path, **names: Any) -> None:
    """Write the table of names by key: the k of k1 is 1."""
    rows = {"k": [int(name[1:]) for name in names], "name": list(names.values())}
    pl.DataFrame(rows, schema={"k": pl.Int64, "name": pl.String}).write_parquet(path)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "names.parquet"
    write(path, k1="a", k2="b")
    return path


def named(table: Path, shards: int, length: int = 1) -> Any:
    def query(clicks: ShardedStream) -> ShardedStream:
        names = clicks._cluster.scan(table, shards=shards, refresh="10m")
        return clicks.query(names.broadcast(), lambda s, r: s.with_duration(length).join(r, on="k", how="left"))

    return query


def clicks() -> dict[str, Any]:
    return {"clicks": scripted(SCHEMA, start="t")}


@pytest.mark.parametrize("shards", [1, 2])
def test_changes_are_seen_from_the_query_s_time_on(table: Path, shards: int) -> None:
    with LiveTest(named(table, shards), clicks(), shards=shards) as test:
        test.push("clicks", {"t": [1, 2, 5], "k": [1, 2, 1]})
        assert sorted(test.step().rows()) == [(1, 2, 1, "a"), (2, 3, 2, "b")]
        write(table, k1="A", k2="b", k3="c")
        test.push("clicks", {"t": [6, 7], "k": [1, 3]})
        assert test.step().rows() == [(5, 6, 1, "a")]  # it is not yet time to look
        test.advance("10m")
        test.push("clicks", {"t": [7, 8, 9, 20], "k": [1, 2, 3, 3]})
        # The query's time is 7: what begins there, also what was there before, has the new names.
        seen = [(6, 7, 1, "a"), (7, 8, 1, "A"), (7, 8, 3, "c"), (8, 9, 2, "b"), (9, 10, 3, "c")]
        assert sorted(test.step().rows()) == seen
        assert test.complete().rows() == [(20, 21, 3, "c")]


def test_only_differences_flow(table: Path) -> None:
    with LiveTest(named(table, 2, length=100), clicks(), shards=2) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 2]})
        test.step()
        write(table, k2="b", k1="A")
        test.advance("10m")
        test.push("clicks", {"t": [50], "k": [9]})
        test.step()
        test.complete()
        assert sorted(test.answer().rows(), key=str) == [
            (1, 2, 1, "a"),
            (2, 101, 1, "A"),
            (2, 102, 2, "b"),
            (50, 150, 9, None),
        ]


def test_a_table_that_is_the_same_makes_no_epoch(table: Path) -> None:
    with LiveTest(named(table, 1), clicks()) as test:
        test.push("clicks", {"t": [1], "k": [1]})
        test.step()
        test.advance("1h")
        write(table, k2="b", k1="a")
        test.step()
        epoch = test.progress.epoch
        write(table, k2="b")
        test.step()
        assert test.progress.epoch == epoch  # it was looked at just now
        test.advance("10m")
        test.step()
        assert test.progress.epoch == epoch + 1  # a change by itself is an epoch
        assert test.complete().rows() == [(1, 2, 1, None)]


def test_equal_rows_and_nulls_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"

    def sized(clicks: ShardedStream) -> ShardedStream:
        rows = clicks._cluster.scan(path, shards=2, refresh="1s")
        sums = rows.rekey("k").redistribute(to=2).query(lambda s: s.count())
        return clicks.rekey("k").redistribute(to=2).query(sums, lambda s, r: s.join(r))

    pl.DataFrame({"k": [1, 1, None], "x": [0.5, 0.5, None]}).write_parquet(path)
    with LiveTest(sized, clicks(), shards=2) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 1]})
        test.step()
        tables: list[list[int | None]] = [[1, 1, 1], [1, None], [1, 1]]
        for number, rows in enumerate(tables):
            frame = pl.DataFrame({"k": rows, "x": [0.5 if k else None for k in rows]}, schema_overrides={"k": pl.Int64})
            frame.write_parquet(path)
            test.advance("1s")
            test.push("clicks", {"t": [10 * number + 10], "k": [1]})
            test.step()
        test.complete()
        assert sorted(test.answer().rows()) == [
            (1, 2, 1, 2),
            (2, 3, 1, 3),
            (10, 11, 1, 1),
            (20, 21, 1, 2),
            (30, 31, 1, 2),
        ]


@pytest.mark.parametrize("moment", ["begin", "work", "deliver"])
def test_the_reading_that_counted_survives(table: Path, moment: str) -> None:
    with LiveTest(named(table, 2), clicks(), shards=2) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 2]})
        test.step()
        write(table, k1="A", k3="c")
        test.advance("10m")
        test.push("clicks", {"t": [5, 6], "k": [1, 3]})
        test.fail(moment)
        with pytest.raises(ScriptedFailure):
            test.step()
        test.restart()
        test.step()
        test.restart()
        write(table, k1="late")  # not before ten minutes
        test.push("clicks", {"t": [7, 8], "k": [1, 2]})
        test.step()
        test.advance("10m")
        test.push("clicks", {"t": [20], "k": [1]})
        test.step()
        test.complete()
        assert sorted(test.answer().rows()) == [
            (1, 2, 1, "a"),
            (2, 3, 2, None),
            (5, 6, 1, "A"),
            (6, 7, 3, "c"),
            (7, 8, 1, "A"),
            (8, 9, 2, None),
            (20, 21, 1, "late"),
        ]
        readings = Path(test.checkpoint) / "readings"
        assert len(list(readings.iterdir())) == 1


def test_early_answers_have_the_table_too(table: Path) -> None:
    with LiveTest(named(table, 1), clicks(), emit="changes", speculate=True) as test:
        test.push("clicks", {"t": [5], "k": [1]})
        assert sorted(test.step().rows()) == [(5, 1, 1, "a"), (6, -1, 1, "a")]
        write(table, k1="A")
        test.advance("10m")
        assert sorted(test.step().rows()) == [(5, -1, 1, "a"), (5, 1, 1, "A"), (6, -1, 1, "A"), (6, 1, 1, "a")]


def test_without_a_checkpoint_readings_are_in_memory(table: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        pl.DataFrame({"t": [10 * number], "k": [1]}).write_parquet(tmp_path / "in" / f"{number}.parquet")
        os.utime(tmp_path / "in" / f"{number}.parquet", (number, number))
    given: list[pl.DataFrame] = []

    def take(frame: pl.DataFrame) -> None:
        given.append(frame)
        write(table, k1=f"after {len(given)}")

    with sq.local(cores=1) as cluster:
        names = cluster.scan(table, refresh="0s")
        clicks = cluster.stream(tmp_path / "in", start="t", files_per_epoch=1)
        query = clicks.query(names, lambda s, r: s.join(r, on="k")).start(take, until_now=True)
        query.wait()
    assert pl.concat(given).rows() == [(0, 1, 1, "a"), (10, 11, 1, "after 1"), (20, 21, 1, "after 2")]


def test_a_query_that_begins_from_stored_rows_goes_on_with_their_reading(table: Path, tmp_path: Path) -> None:
    with sq.local(cores=2) as cluster:

        def query(clicks: ShardedStream) -> ShardedStream:
            names = cluster.scan(table, refresh="1d")
            return clicks.query(names.broadcast(), lambda s, r: s.with_duration(10).join(r, on="k"))

        stored = query(cluster.from_frame({"t": [1, 20], "k": [1, 2]}, start="t"))
        dataset = stored.to_storage(tmp_path / "ds", keep_state=True)
        write(table, k1="not read")
        (tmp_path / "in").mkdir()
        pl.DataFrame({"t": [30], "k": [1]}).write_parquet(tmp_path / "in" / "a.parquet")
        live = query(cluster.stream(tmp_path / "in", start="t"))
        started = live.start(str(tmp_path / "out"), checkpoint=tmp_path / "ck", bootstrap=dataset, until_now=True)
        started.wait()
        assert cluster.scan(tmp_path / "ds").collect().rows() == [(1, 11, 1, "a")]
        assert sorted(started.stable().frame.rows()) == [(20, 30, 2, "b"), (30, 40, 1, "a")]


def test_in_a_plan_that_is_not_live_it_means_nothing(table: Path) -> None:
    with sq.local(cores=2) as cluster:
        assert sorted(cluster.scan(table, refresh="1s").collect().rows()) == [(1, "a"), (2, "b")]


def test_a_table_with_other_columns_stops_the_query(table: Path) -> None:
    with LiveTest(named(table, 1), clicks()) as test:
        test.push("clicks", {"t": [5], "k": [1]})
        test.step()
        pl.DataFrame({"k": [1], "title": ["x"]}).write_parquet(table)
        test.advance("10m")
        with pytest.raises(
            SchemaChangedError, match=r"^scan .*: the table has other columns now: .*title.*\n.*start again"
        ):
            test.step()
        write(table, k1="A")
        test.restart()
        assert test.complete().rows() == [(5, 6, 1, "A")]


def test_what_cannot_be_read_again_is_refused(table: Path, tmp_path: Path) -> None:
    pl.DataFrame({"t": [1], "tags": [["a"]]}).write_parquet(tmp_path / "tags.parquet")
    with sq.local(cores=2) as cluster:
        with pytest.raises(PlanError, match=r"^scan: refresh= is for tables without times.*\n.*cluster\.stream"):
            cluster.scan(table, start="k", refresh="1s")
        with pytest.raises(PlanError, match=r"^scan: refresh= compares rows, and column 'tags' is List"):
            cluster.scan(tmp_path / "tags.parquet", refresh="1s")
        with pytest.raises(DurationError, match=r"^scan: refresh is 10; it is wall-clock time and needs a unit"):
            cluster.scan(table, refresh=10)
        (tmp_path / "in").mkdir()
        stream = cluster.stream(tmp_path / "in", start="t", schema=SCHEMA, format="parquet")
        dealt = cluster.scan(table, refresh="1s").reshard()
        with pytest.raises(PlanError, match=r"^start: rows of a table that is read again cannot be dealt out in turn"):
            stream.query(dealt, lambda s, r: s.join(r, on="k")).start(print)


def test_a_clock_that_was_set_back_does_not_stop_the_readings(table: Path) -> None:
    with LiveTest(named(table, 1), clicks(), now=dt.datetime(2030, 1, 1)) as test:
        test.push("clicks", {"t": [1, 5], "k": [1, 1]})
        test.step()
        write(table, k1="A", k2="b")
        test._world.pass_by(-365 * 86_400.0)
        test.push("clicks", {"t": [6, 9], "k": [1, 1]})
        assert sorted(test.step().rows()) == [(5, 6, 1, "A"), (6, 7, 1, "A")]
