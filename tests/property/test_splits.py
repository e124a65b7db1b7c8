"""Whatever the source and the number of shards: the splits are the source, each in time order, keys in one piece."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.plan.fragments import sources_of
from squill.plan.nodes import Source
from squill.runtime import splits
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


def source_of(stream: sq.Stream) -> Source:
    (source,) = sources_of(stream.plan)
    return source


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
