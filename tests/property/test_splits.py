"""Whatever the source and the number of shards: the splits are the source, each in time order, keys in one piece."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.plan.fragments import sources_of
from squill.plan.nodes import Source
from squill.plan.rewrite import rewrite
from squill.runtime import file_splits, splits
from squill.runtime.shard import read_split
from squill.runtime.splits import splits_of

times = st.one_of(st.integers(-9, 9), st.integers(-9, 9).map(lambda t: t * 10**15))
rows = st.lists(st.tuples(times, st.sampled_from(["a", "b", None]), st.integers(0, 3)), max_size=60)
SCHEMA = {"t": pl.Int64(), "k": pl.String(), "x": pl.Int64()}
Frame = rows.map(lambda items: pl.DataFrame(items, schema=SCHEMA, orient="row"))
Shards = st.integers(1, 5)
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "BLOCK_ROWS", 4)
    monkeypatch.setattr(file_splits, "PART_ROWS", 4)
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 16)
    monkeypatch.setattr(file_splits, "PART_BYTES", 64)


def source_of(stream: sq.Stream) -> Source:
    (source,) = sources_of(rewrite(stream.plan))
    return source


def written(frame: pl.DataFrame, folder: str, files: int, group_rows: int) -> str:
    """Write the frame as files of row groups; without rows there are files too."""
    size = max(1, -(-frame.height // files))
    for number in range(files):
        part = frame.slice(number * size, size)
        path = Path(folder) / f"{number}.parquet"
        if number % 2:
            part.write_parquet(path, row_group_size=group_rows)
        else:
            pq.write_table(part.to_arrow(compat_level=pl.CompatLevel.oldest()), path, row_group_size=group_rows)
    return folder


def read(split: Source) -> list[Row]:
    """Return the split's rows with their times; checks that they come in time order."""
    found: list[Row] = []
    for batch in read_split(split):
        columns = [series.to_list() for series in batch.columns.values()]
        found += zip(batch.sync.tolist(), batch.other.tolist(), *columns, strict=True)
    assert all(row[0] <= later[0] for row, later in pairwise(found))
    return found


def assert_covers(parts: list[Source], source: Source) -> None:
    assert Counter(row for part in parts for row in read(part)) == Counter(read(source))


@settings(deadline=None)
@given(Frame, Shards, st.booleans(), st.booleans())
def test_frames(frame: pl.DataFrame, shards: int, ordered: bool, filtered: bool) -> None:
    stream = sq.from_frame(frame.sort("t") if ordered else frame, start="t", sorted_by="t" if ordered else None)
    source = source_of(stream.where(sq.col("x") > 1) if filtered else stream)
    parts = splits_of(source, shards)
    assert len(parts) == shards
    assert_covers(parts, source)


@settings(deadline=None)
@given(Frame, Shards, st.booleans())
def test_keys_of_packed_frames(frame: pl.DataFrame, shards: int, timeless: bool) -> None:
    packed = frame.sort("k", "x", maintain_order=True)
    source = source_of(sq.from_frame(packed, start=None if timeless else "t", packed=["k", "x"]))
    parts = splits_of(source, shards)
    assert_covers(parts, source)
    keys = [{row[-2:] for row in read(part)} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys))


@settings(deadline=None)
@given(Frame, Shards)
def test_rows_without_times_stay_in_order(frame: pl.DataFrame, shards: int) -> None:
    parts = splits_of(source_of(sq.from_frame(frame)), shards)
    assert [row[2:] for part in parts for row in read(part)] == frame.rows()


comparisons = st.sampled_from(
    [
        None,
        sq.col("t") > 3,
        sq.col("t") <= -4,
        (sq.col("x") == 2) & (sq.col("k") >= "b"),
        (pl.lit(2) < sq.col("x")) & (sq.col("t") > 0.5),
        (sq.col("k") == "a") | (sq.col("x") < 1),
        sq.col("k").is_null(),
    ]
)
layouts = st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 5, 100]))


@settings(deadline=None, max_examples=40)
@given(Frame, layouts, Shards, st.booleans(), comparisons)
def test_row_groups(
    frame: pl.DataFrame, layout: tuple[int, int], shards: int, ordered: bool, predicate: pl.Expr | None
) -> None:
    stored = frame.sort("t", maintain_order=True) if ordered else frame
    with TemporaryDirectory() as folder:
        given_rows = sq.from_frame(stored, start="t", keep_time=True)
        stream = sq.scan(
            written(stored, folder, *layout), start="t", sorted_by="t" if ordered else None, keep_time=True
        )
        if predicate is not None:
            given_rows, stream = given_rows.where(predicate), stream.where(predicate)
        parts = splits_of(source_of(stream), shards)
        assert_covers(parts, source_of(given_rows))
        assert splits_of(source_of(stream), shards) == parts


@settings(deadline=None, max_examples=40)
@given(Frame, layouts, Shards, st.booleans())
def test_keys_of_packed_files(frame: pl.DataFrame, layout: tuple[int, int], shards: int, timeless: bool) -> None:
    packed = frame.sort("k", "x", maintain_order=True)
    with TemporaryDirectory() as folder:
        path = written(packed, folder, *layout)
        source = source_of(sq.scan(path, start=None if timeless else "t", packed=["k", "x"]))
        parts = splits_of(source, shards)
        assert_covers(parts, source)
        keys = [{row[-2:] for row in read(part)} for part in parts]
        assert sum(map(len, keys)) == len(set().union(*keys))


words = st.sampled_from(["", "a", None, "line\nend", 'quo"te', "com,ma", "ü€😀", "x" * 40])
Texts = st.lists(st.tuples(times, words, st.integers(0, 3)), max_size=60).map(
    lambda items: pl.DataFrame(items, schema=SCHEMA, orient="row")
)


@settings(deadline=None, max_examples=40)
@given(Texts | Frame, st.sampled_from(["csv", "ndjson", "ipc"]), st.integers(1, 2), Shards, st.booleans())
def test_lines_and_batches(frame: pl.DataFrame, kind: str, files: int, shards: int, ordered: bool) -> None:
    stored = frame.sort("t", maintain_order=True) if ordered else frame
    first = pl.DataFrame([(-(10**17), "k", 0)], schema=SCHEMA, orient="row")  # types are guessed from a row
    size = max(1, -(-stored.height // files))
    with TemporaryDirectory() as folder:
        for number in range(files):
            part = pl.concat([first, stored.slice(number * size, size)] if number == 0 else [stored[number * size :]])
            path = Path(folder) / f"{number}.{kind}"
            if kind == "ipc":
                part.write_ipc(path, record_batch_size=3)
            elif part.height:
                part.write_csv(path, line_terminator="\r\n" if files == 2 else "\n") if kind == "csv" else (
                    part.write_ndjson(path)
                )
        source = source_of(sq.scan(folder, start="t", sorted_by="t" if ordered else None, format=kind))
        parts = splits_of(source, shards)
        assert_covers(parts, source)
        assert splits_of(source, shards) == parts
