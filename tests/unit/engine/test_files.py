"""Reading files: every format, in time order, in pieces, with and without statistics."""

from __future__ import annotations

import datetime as dt
import gzip
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.engine import files, time_sorter
from squill.engine.batch import Batch
from squill.engine.files import pieces_of
from squill.errors import SchemaChangedError
from squill.plan.nodes import FilePart, FileSource
from squill.plan.rewrite import rewrite
from squill.runtime.splits import splits_of
from squill.stream import Stream

ROWS = 1000
FRAME = pl.DataFrame(
    {
        "t": [(7919 * i) % 997 for i in range(ROWS)],
        "k": [i % 5 for i in range(ROWS)],
        "s": [None if i % 11 == 0 else f"row {i}" for i in range(ROWS)],
    }
)
WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: frame.write_parquet(path, row_group_size=50),
    "csv": lambda frame, path: frame.write_csv(path),
    "ndjson": lambda frame, path: frame.write_ndjson(path),
    "ipc": lambda frame, path: frame.write_ipc(path),
}


def written(folder: Path, suffix: str, frame: pl.DataFrame = FRAME, parts: int = 3) -> str:
    size = -(-frame.height // parts)
    for part in range(parts):
        WRITERS[suffix](frame.slice(part * size, size), folder / f"{part}.{suffix}")
    return str(folder)


def source_of(stream: Stream) -> FileSource:
    node = stream.plan
    assert isinstance(node, FileSource)
    return node


@pytest.fixture(params=["memory", "spilled"])
def _bounds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small pieces, so that a thousand rows are many; spilled: next to no memory."""
    monkeypatch.setattr(files, "PIECE_ROWS", 100)
    monkeypatch.setattr(files, "CHUNK_ROWS", 64)
    if request.param == "spilled":
        monkeypatch.setattr(time_sorter, "MEMORY_BYTES", 1_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("spill")))


@pytest.mark.usefixtures("_bounds")
@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("order", ["unsorted", "sorted"])
def test_files_give_the_frame_they_were_written_from(tmp_path: Path, suffix: str, order: str) -> None:
    frame = FRAME if order == "unsorted" else FRAME.sort("t")
    answer = sq.scan(written(tmp_path, suffix, frame), start="t").collect()
    assert answer["start"].is_sorted()
    expected = sq.from_frame(frame, start="t").collect(sort=True)
    assert answer.sort(answer.columns).equals(expected)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


@pytest.mark.parametrize(
    "dtype", [pl.Int32(), pl.UInt64(), pl.Date(), pl.Datetime("ms"), pl.Datetime("ns", "Asia/Tokyo")]
)
def test_statistics_give_the_earliest_time_of_each_piece(tmp_path: Path, dtype: pl.DataType) -> None:
    ticks = pl.Series("t", [30, 20, 5, 9], pl.Int64)
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        times = (
            ticks.cast(pl.Datetime(dtype.time_unit)).dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
        )
    else:
        times = ticks.cast(dtype)
    pl.DataFrame([times]).write_parquet(tmp_path / "a.parquet", row_group_size=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE_ROWS", 1)
        pieces = pieces_of(source_of(sq.scan(tmp_path / "a.parquet", start="t")))
    assert [(piece.first, piece.size, piece.low) for piece in pieces] == [(2, 2, 5), (0, 2, 20)]


@pytest.mark.parametrize(("ahead", "begun"), [(0, 1), (1_000, 2)])
def test_rows_leave_before_later_pieces_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, begun: int
) -> None:
    monkeypatch.setattr(files, "PIECE_ROWS", 100)
    monkeypatch.setattr(files, "AHEAD_ROWS", ahead)
    monkeypatch.setattr(files, "CHUNK_ROWS", 64)
    node = source_of(sq.scan(written(tmp_path, "parquet", FRAME.sort("t")), start="t"))
    read = noted_reads(monkeypatch)
    next(files.file_batches(node, 10))
    assert len(read) == begun


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("times", [{}, {"start": "t", "sorted_by": "t"}], ids=["relational", "promised order"])
def test_the_next_file_is_begun_when_the_first_rows_of_one_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, times: dict[str, str]
) -> None:
    node = source_of(sq.scan(written(tmp_path, suffix, FRAME.sort("t"), parts=4), **times))  # type: ignore[arg-type]
    read = noted_reads(monkeypatch)
    arrivals = files.file_batches(node, ROWS)
    assert not read
    next(arrivals)
    assert [Path(part.path).stem for part in read] == ["0", "1"]
    rows = sum(len(arrival.batch) for arrival in arrivals if arrival.batch is not None)
    assert (rows, len(read)) == (ROWS - ROWS // 4, 4)


def test_the_next_part_is_begun_near_the_end_of_one_whose_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "AHEAD_ROWS", 60)
    monkeypatch.setattr(files, "CHUNK_ROWS", 1)
    WRITERS["parquet"](FRAME, tmp_path / "0.parquet")
    WRITERS["parquet"](FRAME, tmp_path / "1.parquet")
    parts = tuple(FilePart(str(tmp_path / f"{number}.parquet"), 0, ROWS) for number in range(2))
    read = noted_reads(monkeypatch)
    arrivals = files.file_batches(replace(source_of(sq.scan(tmp_path)), parts=parts), ROWS)
    assert [len(read) for _, _ in zip(range(20), arrivals, strict=False)] == [1] * 18 + [2] * 2


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[FilePart]:
    read: list[FilePart] = []
    frames = files.frames_of

    def noted(source: FileSource, piece: FilePart) -> Iterator[pl.DataFrame]:
        read.append(piece)
        return frames(source, piece)

    monkeypatch.setattr(files, "frames_of", noted)
    return read


def test_row_groups_in_order_are_read_at_once_and_not_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_ROWS", 50)
    monkeypatch.setattr(files, "CHUNK_ROWS", 64)

    def refuse(_sorter: time_sorter.TimeSorter, batch: Batch) -> None:
        assert not len(batch)

    monkeypatch.setattr(time_sorter.TimeSorter, "add", refuse)
    frame = pl.DataFrame({"t": range(600)})
    read = noted_reads(monkeypatch)
    stream = sq.scan(written(tmp_path, "parquet", frame), start="t")
    assert stream.collect()["start"].to_list() == list(range(600))
    assert [(Path(part.path).name, part.first, part.size) for part in read] == [
        ("0.parquet", 0, 200), ("1.parquet", 0, 200), ("2.parquet", 0, 200),
    ]  # fmt: skip


def test_files_of_the_same_times_are_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_ROWS", 50)
    for number in range(2):
        times = pl.DataFrame({"t": range(number, 400, 2)})
        times.write_parquet(tmp_path / f"{number}.parquet", row_group_size=50)
    read = noted_reads(monkeypatch)
    assert sq.scan(tmp_path, start="t").collect()["start"].to_list() == list(range(400))
    assert [(Path(part.path).name, part.first) for part in read[:4]] == [
        ("0.parquet", 0), ("1.parquet", 0), ("0.parquet", 50), ("1.parquet", 50),
    ]  # fmt: skip


def test_small_row_groups_are_handed_on_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_ROWS", 64)
    pl.DataFrame({"x": range(200)}).write_parquet(tmp_path / "a.parquet", row_group_size=10)
    node = source_of(sq.scan(tmp_path))
    batches = [arrival.batch for arrival in files.file_batches(node, 1_000)]
    assert [len(batch) for batch in batches if batch is not None] == [40, 40, 40, 40, 40]


def test_promised_order_needs_no_sorting_and_no_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "in_time_order", None)
    stream = sq.scan(written(tmp_path, "csv", FRAME.sort("t")), start="t", sorted_by="t")
    assert stream.collect().height == ROWS


def test_files_are_read_in_name_order(tmp_path: Path) -> None:
    written(tmp_path, "parquet")
    assert [Path(path).name for path in source_of(sq.scan(str(tmp_path / "*.parquet"))).paths] == [
        "0.parquet", "1.parquet", "2.parquet",
    ]  # fmt: skip


def test_csv_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x\n1,2\n")
    (tmp_path / "b.csv").write_text("x,t\n20,10\n")
    assert sq.scan(tmp_path, start="t").collect().rows() == [(1, 2, 2), (10, 11, 20)]


@pytest.mark.parametrize("name", ["a.csv.gz", "A.CSV", "a.ndjson.gz"])
def test_names_of_packed_files_tell_their_format(tmp_path: Path, name: str) -> None:
    content = FRAME.write_ndjson().encode() if "ndjson" in name else FRAME.write_csv().encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for path in (tmp_path / name, tmp_path):
        assert sq.scan(path, start="t").collect().equals(sq.from_frame(FRAME, start="t").collect())


def test_a_shard_says_how_a_file_differs_from_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,k\n1,1\n")
    (tmp_path / "b.csv").write_text("t,k\n5,x\n")
    differs = r"scan: column 'k' is String in '.*b.csv'; in this input it is Int64\n.*schema=.*union"
    with sq.local(2) as cluster, pytest.raises(SchemaChangedError, match=differs):
        cluster.scan(tmp_path, start="t").collect()


def test_csv_dates_are_times(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("day,x\n2020-01-02,1\n")
    assert sq.scan(tmp_path, start="day").collect()["start"].to_list() == [dt.date(2020, 1, 2)]


def test_relational_files_have_no_times(tmp_path: Path) -> None:
    assert sq.scan(written(tmp_path, "ipc")).collect().equals(FRAME)


def test_a_count_reads_rows_without_columns(tmp_path: Path) -> None:
    stream = sq.scan(written(tmp_path, "parquet")).count()
    assert stream.collect().item() == ROWS
    (source,) = (node for node in rewrite(stream.plan).inputs)
    assert source.schema.names == ()


def test_pushed_down_queries_give_the_same_answer(tmp_path: Path) -> None:
    def query(stream: Stream) -> Stream:
        return (
            stream.where(sq.col("k") < 3)
            .where(sq.col("s").is_not_null())
            .select("k")
            .group_apply("k", lambda g: g.tumbling_window(100).count())
        )

    answer = query(sq.scan(written(tmp_path, "parquet"), start="t")).collect(sort=True)
    assert answer.equals(query(sq.from_frame(FRAME, start="t")).collect(sort=True))


@pytest.mark.parametrize("kind", ["to_parquet", "to_ipc"])
def test_written_results_read_back_as_the_same_stream(tmp_path: Path, kind: str) -> None:
    query = sq.from_frame(FRAME, start="t").group_apply("k", lambda g: g.hopping_window(50, 10).count())
    path = tmp_path / ("answer.parquet" if kind == "to_parquet" else "answer.arrow")
    rows = getattr(query, kind)(path)
    again = sq.scan(path, start="start", end="end")
    expected = query.collect(sort=True)
    assert rows == expected.height
    assert again.collect(sort=True).equals(expected)


@pytest.mark.parametrize("suffix", WRITERS)
def test_parts_of_files_are_in_time_order_however_they_are_counted(tmp_path: Path, suffix: str) -> None:
    """Parts of ipc are counted in batches: rows once passed for these, and left before earlier ones were read."""
    for number in range(2):
        part = FRAME.slice(number * 500, 500)
        path = tmp_path / f"{number}.{suffix}"
        part.write_ipc(path, record_batch_size=50) if suffix == "ipc" else WRITERS[suffix](part, path)
    source = source_of(sq.scan(tmp_path, start="t"))
    splits = splits_of(source, 3)
    batches = [[arrival.batch for arrival in files.file_batches(split, 64)] for split in splits]  # type: ignore[arg-type]
    for mine in batches:
        times = [t for batch in mine if batch is not None for t in batch.sync.tolist()]
        assert times == sorted(times)
    counted = sq.scan(tmp_path, start="t").group_apply("k", lambda g: g.sliding_window(9).count()).collect(sort=True)
    with sq.local(cores=3) as cluster:
        rows = cluster.scan(tmp_path, start="t").rekey("k").redistribute()
        assert rows.query(lambda g: g.sliding_window(9).count()).collect(sort=True).equals(counted)


@pytest.mark.parametrize("suffix", ["parquet", "ipc"])
@pytest.mark.parametrize("column", ["t", "x"])
def test_types_that_a_file_was_given_after_the_query_was_made_are_an_error(
    tmp_path: Path, suffix: str, column: str
) -> None:
    frame = pl.DataFrame({"t": [dt.datetime(2024, 1, 1)], "x": [1]})
    path = tmp_path / f"a.{suffix}"
    WRITERS[suffix](frame, path)
    with sq.local(2) as cluster:
        collects = [sq.scan(path, start="t").collect, cluster.scan(path, start="t").collect]
        WRITERS[suffix](frame.cast({column: pl.Datetime("ns")}), path)
        for collect in collects:
            with pytest.raises(SchemaChangedError, match=f"column '{column}' is Datetime.*'ns'.* in this input it is"):
                collect()
