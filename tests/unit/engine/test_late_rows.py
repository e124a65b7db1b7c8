"""The side stream of late rows is bounded, complete in its count, and cheap row by row."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.engine.late_rows import LateRows


def rows(low: int, high: int) -> Batch:
    return Batch(np.arange(low, high), 1, {"x": pl.Series("x", range(low, high), pl.Int64)})


def kept(late: LateRows) -> list[int]:
    batch = late.rows()
    assert batch is None or batch.columns["x"].to_list() == batch.sync.tolist()
    return [] if batch is None else batch.sync.tolist()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("keep", [0, 1, 5, 40])
def test_the_newest_are_kept_in_arrival_order(step: int, keep: int) -> None:
    late = LateRows(keep)
    for low in range(0, 100, step):
        high = min(low + step, 100)
        late.add(rows(low, high), np.arange(low, high) + 1000)
        assert kept(late) == list(range(max(high - keep, 0), high))
        assert (late.times_met() - 1000).tolist() == kept(late)
        assert len(late) == min(high, keep)
        assert late.total == high


def test_rows_one_by_one_make_few_batches() -> None:
    late = LateRows(1000)
    for t in range(5000):
        late.add(rows(t, t + 1), np.array([t]))
        assert len(late.save()["batches"]) <= 12
    assert kept(late) == list(range(4000, 5000))


def test_one_large_push_does_not_keep_its_memory() -> None:
    late = LateRows(10)
    late.add(rows(0, 100_000), np.arange(100_000))
    batch = late.rows()
    assert batch is not None
    assert batch.sync.base is None or len(batch.sync.base) == 10
    assert batch.columns["x"].estimated_size() <= 80


def test_cleared_rows_stay_counted() -> None:
    late = LateRows(10)
    late.add(rows(0, 4), np.arange(4))
    late.clear()
    assert (kept(late), len(late), late.total) == ([], 0, 4)
    late.add(rows(4, 5), np.arange(1))
    assert (kept(late), late.total) == ([4], 5)


def test_a_saved_side_stream_goes_on_apart_from_the_first() -> None:
    first = LateRows(4)
    first.add(rows(0, 3), np.arange(3))
    second = LateRows(4)
    second.load(first.save())
    first.add(rows(3, 9), np.arange(6))
    assert (kept(second), second.total) == ([0, 1, 2], 3)
    second.add(rows(3, 5), np.arange(2))
    assert (kept(second), second.total) == ([1, 2, 3, 4], 5)
