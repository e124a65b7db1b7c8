"""What leaves a plan: frames, single events, files."""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.egress_file import FileSink
from squill.engine.unfinished import hidden_beside
from squill.errors import PlanError, SquillError, TimeOverflowError
from squill.plan.events import Event


def test_events_go_through_unchanged_with_their_punctuations() -> None:
    events: list[Event] = [
        sq.punctuation(0), sq.point(1, x="p"), sq.start_edge(2, x="a"), sq.interval(2, 5, x="i"), sq.punctuation(3),
        sq.end_edge(7, 2, x="a"), sq.punctuation(None),
    ]  # fmt: skip
    assert sq.from_events(events).collect_events() == events


def test_time_ends_with_a_punctuation_at_infinity() -> None:
    assert sq.from_frame({"t": [1]}, start="t").collect_events() == [sq.point(1), sq.punctuation(None)]


def test_an_endless_row_of_known_ends_is_an_interval() -> None:
    assert sq.from_frame({"t": [1]}, start="t", lifetime="open").collect_events()[0] == sq.interval(1, None)


def test_events_carry_times_of_the_input_type() -> None:
    day = dt.date(2020, 1, 1)
    assert sq.from_events([sq.interval(day, dt.date(2020, 2, 1))]).collect_events()[0].start == day


def test_collected_events_give_the_same_stream_again() -> None:
    query = sq.from_frame({"t": [1, 2, 9], "u": [4, 7, None]}, start="t", end="u").count()
    again = sq.from_events(query.collect_events())
    assert again.collect(sort=True).equals(query.collect(sort=True))


def test_a_result_that_its_time_type_cannot_hold_is_an_error() -> None:
    frame = pl.DataFrame({"t": pl.Series([120], dtype=pl.Int8)})
    with pytest.raises(TimeOverflowError, match="the end time 130 does not fit Int8"):
        sq.from_frame(frame, start="t").with_duration(10).collect()


@pytest.mark.parametrize("dtype", [pl.Date, pl.Datetime("us")])
def test_a_start_without_a_beginning_is_null_wherever_it_stands(tmp_path: Path, dtype: pl.DataType) -> None:
    times = pl.Series("t", [1, 10], pl.Int32).cast(pl.Date).cast(dtype)
    left = sq.from_frame(pl.DataFrame([times, pl.Series("k", [9, 1])]), start="t").with_duration("1d")
    query = left.join(sq.from_frame({"k": [1]}), on="k", how="full")
    query.to_parquet(tmp_path / "rows.parquet")
    written = pl.read_parquet(tmp_path / "rows.parquet")
    # Rows stand as they have ended.
    assert [value is None for value in written["start"]] == [False, False, True, False]
    assert written.sort("k", "start").equals(query.collect().sort("k", "start"))


@pytest.mark.parametrize("kind", ["to_parquet", "to_ipc"])
def test_every_type_survives_a_file(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame({
        "t": pl.Series([1, 2, 3], dtype=pl.Datetime("ms", "Europe/Paris")),
        "category": pl.Series(["x", "y", None], dtype=pl.Categorical),
        "enum": pl.Series(["x", "y", "x"], dtype=pl.Enum(["x", "y"])),
        "decimal": pl.Series(["1.5", None, "2"]).cast(pl.Decimal(10, 2)),
        "duration": [dt.timedelta(1)] * 3,
        "list": [[1], [], None],
        "struct": [{"a": 1}] * 3,
        "time": [dt.time(1)] * 3,
        "bytes": [b"x", None, b""],
        "small": pl.Series([1, 2, None], dtype=pl.UInt8),
    })  # fmt: skip
    stream = sq.from_frame(frame, start="t")
    path = tmp_path / "a.file"
    getattr(stream, kind)(path)
    again = sq.scan(path, start="start", end="end", format=kind.removeprefix("to_"))
    assert again.collect().equals(stream.collect())
    assert again.collect().schema == stream.collect().schema


@pytest.mark.parametrize("kind", ["to_parquet", "to_ipc"])
@pytest.mark.parametrize("dtype", [pl.Int128(), pl.List(pl.Int128), pl.Struct({"a": pl.UInt128})])
def test_numbers_that_arrow_has_not_are_refused_before_anything_is_read(
    tmp_path: Path, kind: str, dtype: pl.DataType
) -> None:
    stream = sq.from_frame(pl.DataFrame(schema={"t": pl.Int64, "x": dtype}), start="t")
    with pytest.raises(PlanError, match=rf"{kind}: the column 'x' is .*128.* Arrow has no numbers of 128 bits"):
        getattr(stream, kind)(tmp_path / "a.file")
    assert list(tmp_path.iterdir()) == []


def test_rows_are_written_in_the_order_in_which_their_ends_are_known(tmp_path: Path) -> None:
    stream = sq.from_events([sq.start_edge(1, x=1), sq.start_edge(2, x=2), sq.end_edge(5, 2, x=2)])
    assert stream.to_parquet(tmp_path / "a.parquet") == 2
    assert pl.read_parquet(tmp_path / "a.parquet").rows() == [(2, 5, 2), (1, None, 1)]


def test_an_empty_answer_is_a_file_without_rows(tmp_path: Path) -> None:
    stream = sq.from_frame({"t": [1], "x": [1]}, start="t").where(sq.col("x") > 1)
    assert stream.to_ipc(tmp_path / "a.arrow") == 0
    assert pl.read_ipc(tmp_path / "a.arrow").schema == {"start": pl.Int64, "end": pl.Int64, "x": pl.Int64}


def test_a_failure_leaves_no_file_and_the_old_one_untouched(tmp_path: Path) -> None:
    good = sq.from_frame({"t": [1], "x": [2**62]}, start="t", lifetime="open")
    good.to_parquet(tmp_path / "a.parquet")
    before = (tmp_path / "a.parquet").read_bytes()
    bad = sq.from_frame({"t": [1, 2], "x": [2**62, 2**62]}, start="t", lifetime="open").sum("x")
    with pytest.raises(SquillError):
        bad.to_parquet(tmp_path / "a.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    assert (tmp_path / "a.parquet").read_bytes() == before


KILLED = """
import os, signal, sys, squill as sq

def die(x):
    os.kill(os.getpid(), signal.SIGKILL)

sq.from_frame({"t": [1]}, start="t").map_batches(die).to_parquet(sys.argv[1])
"""


def test_what_a_killed_process_has_written_goes_with_the_next_file_of_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == -signal.SIGKILL
    assert [left.name.startswith(".a.parquet.") for left in tmp_path.iterdir()] == [True]
    here = hidden_beside(path, "mine", ".unfinished")
    here.touch()
    sq.from_frame({"t": [1]}, start="t").to_parquet(path)
    assert set(tmp_path.iterdir()) == {path, here}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("kind", ["to_parquet", "to_ipc"])
def test_a_full_disk_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    real = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda path, mode: real("/dev/full", mode))
    stream = sq.from_frame({"t": range(200_000)}, start="t")
    with pytest.raises(PlanError, match=rf"{kind}: '.*/a' cannot be written: .*No space left.*\nHint: see to"):
        getattr(stream, kind)(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_rows_without_time_are_written_as_they_come(tmp_path: Path) -> None:
    # No clock moves before their end, so that waiting for one would hold all of them.
    rows = sq.from_frame({"x": list(range(100_000))}).plan
    sink = FileSink(rows, tmp_path / "rows.parquet", "parquet")
    try:
        sink.push(Batch.relational({"x": pl.Series("x", range(100_000))}, 100_000))
        assert sink.rows_written == 100_000
    finally:
        sink.abandon()
