from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine import collected_rows
from squill.engine.batch import Batch
from squill.engine.collected_rows import CollectedRows
from squill.time import INFINITY

ROWS = 8


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected_rows, "FEW_ROWS", 3)
    monkeypatch.setattr(collected_rows, "SLAB_ROWS", ROWS)
    monkeypatch.setattr(collected_rows, "LEAST_BATCHES", 1)


def batch(first: int, size: int, **other: object) -> Batch:
    times = np.arange(first, first + size)
    columns = {
        "t": pl.Series("t", times).cast(pl.Datetime("us")),
        "x": pl.Series("x", times / 2, dtype=pl.Float32),
    }
    return Batch(times, other.get("other", times + 3), columns, other.get("ids"))  # type: ignore[arg-type]


def rows_of(batches: list[Batch]) -> list[tuple[object, ...]]:
    return [
        row
        for item in batches
        for row in zip(
            item.sync.tolist(),
            item.other.tolist(),
            *(column.to_list() for column in item.columns.values()),
            strict=True,
        )
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9, 20])
def test_rows_stay_as_they_came_whatever_their_batches(size: int) -> None:
    given = [batch(first, size) for first in range(0, 40, size)]
    kept = CollectedRows()
    for item in given:
        kept.add(item)
    assert rows_of(kept.batches) == rows_of(given)
    assert len(kept) == sum(map(len, given))
    assert [column.dtype for column in kept.batches[-1].columns.values()] == [pl.Datetime("us"), pl.Float32]


def test_small_answers_are_kept_as_they_came() -> None:
    given = [batch(0, 2), batch(2, 1)]
    kept = CollectedRows()
    for item in given:
        kept.add(item)
    assert [id(item) for item in kept.batches] == [id(item) for item in given]


def test_later_batches_are_put_together() -> None:
    kept = CollectedRows()
    for first in range(0, 20, 2):
        kept.add(batch(first, 2))
    assert [len(item) for item in kept.batches] == [2, 8, 8, 2]


def test_what_was_looked_at_does_not_change_when_more_is_added() -> None:
    kept = CollectedRows()
    for first in range(0, 8, 2):
        kept.add(batch(first, 2))
    seen = kept.batches
    before = rows_of(seen)
    kept.add(batch(8, 2))
    assert rows_of(seen) == before
    assert len(rows_of(kept.batches)) == 10


def test_rows_with_nulls_and_text_stand_between_the_others() -> None:
    text = {"t": pl.Series("t", ["a", "b"]), "x": pl.Series("x", [1, None])}
    given = [batch(0, 4), batch(4, 2), Batch(np.array([6, 7]), 5, text), batch(8, 2)]
    kept = CollectedRows()
    for item in given:
        kept.add(item)
    assert rows_of(kept.batches) == rows_of(given)


def test_durations_stay_numbers_while_they_are_alike() -> None:
    given = [batch(first, 2, other=other) for first, other in ((0, 5), (2, 5), (4, 5), (6, INFINITY), (8, 3))]
    kept = CollectedRows()
    for item in given[:3]:
        kept.add(item)
    assert [item.duration for item in kept.batches] == [5, 5]
    for item in given[3:]:
        kept.add(item)
    assert rows_of(kept.batches) == rows_of(given)


def test_rows_of_other_types_are_not_read_as_if_they_were_these() -> None:
    other = Batch(np.array([8]), 1, {"t": pl.Series("t", [8]).cast(pl.Datetime("ms")), "x": pl.Series("x", [0.5])})
    given = [batch(0, 4), batch(4, 2), other, batch(9, 2)]
    kept = CollectedRows()
    for item in given:
        kept.add(item)
    assert rows_of(kept.batches) == rows_of(given)


def test_alternating_kinds_of_rows_make_no_slab_each() -> None:
    nulls = Batch(
        np.array([6, 7]), 5, {"t": pl.Series("t", [None, 7], pl.Datetime("us")), "x": pl.Series("x", [1.0, 2.0])}
    )
    given = [batch(0, 2), batch(2, 2), nulls, batch(8, 2), nulls, batch(10, 2)]
    kept = CollectedRows()
    for item in given:
        kept.add(item)
    assert [id(item) for item in kept.batches[2:]] == [id(item) for item in given[2:]]


def test_rows_of_many_columns_have_smaller_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected_rows, "SLAB_BYTES", 8 * 5 * 3)
    kept = CollectedRows()
    for first in range(0, 12, 1):
        kept.add(batch(first, 1))
    assert [len(item) for item in kept.batches] == [1, 1, 1, 3, 3, 3]


def test_a_slab_that_is_mostly_empty_is_not_held_by_the_answer() -> None:
    kept = CollectedRows()
    for item in (batch(0, 3), batch(3, 2)):
        kept.add(item)
    assert kept.batches[-1].sync.base is None
    kept.add(batch(5, 2))
    assert kept.batches[-1].sync.base is not None


@pytest.mark.parametrize(
    "ids",
    [
        [range(4), range(4, 6), range(6, 8)],
        [range(4), range(4, 6), range(10, 12)],
        [range(4), np.array([4, 7]), np.array([9, 8])],
        [range(4), np.array([4, 7]), range(8, 10)],
        [range(4), range(4, 6), None],
        [None, None, range(2)],
    ],
)
def test_rows_keep_their_numbers(ids: list[object]) -> None:
    kept = CollectedRows()
    given = [
        batch(first, size, ids=numbers) for (first, size), numbers in zip([(0, 4), (4, 2), (6, 2)], ids, strict=True)
    ]
    for item in given:
        kept.add(item)
    assert numbers_of(kept.batches) == numbers_of(given)


def numbers_of(batches: list[Batch]) -> list[tuple[int, int | None]]:
    return [
        (time, number)
        for item in batches
        for time, number in zip(
            item.sync.tolist(), [None] * len(item) if item.ids is None else list(item.ids), strict=True
        )
    ]


def test_rows_without_times_are_kept_as_they_came() -> None:
    rows = Batch.relational({"x": pl.Series("x", [1, 2])}, 2)
    kept = CollectedRows()
    for _ in range(4):
        kept.add(rows)
    assert [item.is_timeless for item in kept.batches] == [True] * 4
