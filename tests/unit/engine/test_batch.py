from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch, Instant
from squill.engine.hashing import hash_columns
from squill.engine.keyed import KeySlots
from squill.plan.schema import Schema


@pytest.mark.parametrize("kind", [np.uint32, np.int64, np.int32])
@pytest.mark.parametrize("duration", [5, None])
def test_rows_are_taken_by_numbers_of_any_width(kind: type[Any], duration: int | None) -> None:
    sync = np.arange(10, 20)
    batch = Batch(sync, sync + 5 if duration is None else duration, {"x": pl.Series("x", range(10))})
    batch.ids = range(100, 110)
    found = batch.take(np.array([7, 0, 7], kind))
    assert found.sync.tolist() == [17, 10, 17]
    assert found.other.tolist() == [22, 15, 22]
    assert found.columns["x"].to_list() == [7, 0, 7]
    assert found.ids is not None
    assert list(found.ids) == [107, 100, 107]


@pytest.mark.parametrize("ends", ["a duration", "their own"])
@pytest.mark.parametrize("times", ["one", "many", "none"])
def test_rows_are_placed_with_their_times(ends: str, times: str) -> None:
    sync = np.full(4, 10) if times == "one" else np.arange(10, 14)
    columns = {"x": pl.Series("x", range(4))}
    other = 5 if ends == "a duration" else sync + np.arange(1, 5)
    given = Batch(Instant(10, 4) if times == "one" else sync, other, columns)
    batch = Batch.relational(columns, 4) if times == "none" else given
    rows = np.array([3, 0, 2, 1])
    found = batch.placed(np.argsort(rows).astype(np.uint32))
    assert found.columns["x"].to_list() == rows.tolist()
    assert found.sync.tolist() == batch.sync[rows].tolist()
    assert found.other.tolist() == batch.other[rows].tolist()
    assert found.is_timeless == batch.is_timeless


def hashed(*keys: str) -> Batch:
    column = pl.Series("k", keys)
    batch = Batch(np.arange(len(keys)), 1, {"k": column, "x": pl.Series("x", range(len(keys)))})
    batch.hash = ("k",), hash_columns([column])
    return batch


@pytest.mark.parametrize("is_timeless", [False, True])
def test_the_hash_of_a_key_stays_with_its_rows(is_timeless: bool) -> None:
    batch = hashed("a", "b", "c", "a")
    if is_timeless:
        timed, batch = batch, Batch.relational(batch.columns, 4)
        batch.hash = timed.hash
    later = batch if is_timeless else batch.with_lifetimes(batch.sync + 1, 5)
    found = [
        batch.slice(1, 3),
        batch.take(np.array([3, 1], np.uint32)),
        batch.placed(np.array([2, 0, 3, 1], np.uint32)),
        batch.filter(np.array([True, False, True, True])),
        Batch.concat([batch, batch.slice(2, 4)]),
        batch.with_columns({"k": batch.columns["k"], "y": pl.Series("y", range(4))}),
        later,
    ]
    for item in found:
        known = item.hash_of(["k"])
        assert known is not None
        assert known.tolist() == hash_columns([item.columns["k"]]).tolist()


def test_the_hash_is_lost_where_it_would_be_wrong() -> None:
    batch, other = hashed("a", "b"), hashed("c", "d")
    assert batch.with_columns({"k": pl.Series("k", ["b", "a"])}).hash is None
    assert batch.with_columns({"x": batch.columns["x"]}).hash is None
    other.hash = None
    assert Batch.concat([batch, other]).hash is None
    assert batch.hash_of(["k", "x"]) is None


def test_keys_are_looked_up_by_the_hash_that_is_known() -> None:
    """A wrong one is believed: equal keys of different hashes get slots of their own."""
    batch = hashed("a", "a")
    slots = KeySlots(["k"], Schema({"k": pl.String()}))
    assert len(set(slots.slots(batch).tolist())) == 1
    batch.hash = ("k",), np.array([1 << 40, 1 << 41], np.uint64)
    assert len(set(slots.slots(batch).tolist())) == 2


def instant(size: int = 4) -> Batch:
    return Batch(Instant(7, size), 3, {"x": pl.Series("x", range(size))})


def has_array(batch: Batch) -> bool:
    return not isinstance(batch._sync, Instant)


def test_rows_of_one_time_have_no_array_of_it_before_somebody_reads_it() -> None:
    batch = instant()
    pieces = [
        batch,
        batch.slice(1, 3),
        batch.take(np.array([2, 0, 1])),
        batch.filter(np.array([True, False, True, True])),
        batch.with_columns({}),
        batch.with_duration(5),
    ]
    assert [(len(piece), piece.first_sync, piece.last_sync) for piece in pieces] == [
        (4, 7, 7), (2, 7, 7), (3, 7, 7), (3, 7, 7), (4, 7, 7), (4, 7, 7),
    ]  # fmt: skip
    assert not any(map(has_array, pieces))
    assert [piece.sync.tolist() for piece in pieces] == [[7] * len(piece) for piece in pieces]
    assert [piece.other.tolist()[0] for piece in pieces] == [10, 10, 10, 10, 10, 12]


def test_rows_of_one_time_are_put_together_with_others() -> None:
    other = Batch(np.array([8, 9]), 3, {"x": pl.Series("x", [8, 9])})
    whole = Batch.concat([instant(2), other])
    assert (whole.sync.tolist(), whole.other.tolist()) == ([7, 7, 8, 9], [10, 10, 11, 12])
    assert pickle.loads(pickle.dumps(instant(2))).sync.tolist() == [7, 7]


def test_rows_of_one_time_put_together_still_have_one() -> None:
    whole = Batch.concat([instant(2), instant(3)])
    assert not has_array(whole)
    assert (len(whole), whole.first_sync, whole.columns["x"].to_list()) == (5, 7, [0, 1, 0, 1, 2])
    later = Batch(Instant(9, 1), 3, {"x": pl.Series("x", [5])})
    assert Batch.concat([whole, later]).sync.tolist() == [7, 7, 7, 7, 7, 9]
    assert Batch.concat([whole, Batch(np.array([8]), 3, later.columns)]).sync.tolist() == [7, 7, 7, 7, 7, 8]
