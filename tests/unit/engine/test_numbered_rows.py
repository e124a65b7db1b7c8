from __future__ import annotations

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.numbered_rows import NumberedRows


def rows(ids: range) -> Batch:
    sync = np.arange(ids.start, ids.stop)
    return Batch(sync, sync + 1, {"x": pl.Series("x", sync * 10)}, ids)


def closed(store: NumberedRows, ids: list[int]) -> dict[int, int]:
    """Close rows and return id by x."""
    found = store.close(np.array(ids), np.array(ids) + 100)
    if found is None:
        return {}
    return {x // 10: end - 100 for x, end in zip(found.columns["x"], found.other.tolist(), strict=True)}


def test_rows_are_found_again_after_merges() -> None:
    store = NumberedRows({"x": pl.Int64()})
    for low in range(0, 64, 2):
        store.add(rows(range(low, low + 2)))
    assert closed(store, [63, 0, 17]) == {63: 63, 0: 0, 17: 17}
    assert len(store) == 61


def test_unknown_numbers_are_left_alone() -> None:
    store = NumberedRows({"x": pl.Int64()})
    store.add(Batch(np.array([1, 2]), np.array([9, 9]), {"x": pl.Series("x", [10, 40])}, np.array([1, 4])))
    assert closed(store, [2, 4, 9]) == {4: 4}


def test_closed_rows_are_let_go_and_the_others_remain() -> None:
    store = NumberedRows({"x": pl.Int64()})
    for low in range(0, 40, 4):
        store.add(rows(range(low, low + 4)))
        closed(store, [low, low + 1, low + 2])
    left = store.take()
    assert left is not None
    assert left.columns["x"].to_list() == [10 * (low + 3) for low in range(0, 40, 4)]
    assert len(store) == 0


def test_a_loaded_store_has_the_open_rows() -> None:
    store, copy = NumberedRows({"x": pl.Int64()}), NumberedRows({"x": pl.Int64()})
    store.add(rows(range(5)))
    closed(store, [1])
    copy.load(store.save())
    assert closed(copy, [1, 2]) == {2: 2}


def test_closed_rows_can_come_by_end_then_start() -> None:
    store = NumberedRows({"x": pl.Int64()})
    store.add(rows(range(5)))
    found = store.close(np.array([3, 1, 0, 4]), np.array([8, 9, 9, 7]), by_end=True)
    assert found is not None
    assert (found.sync.tolist(), found.other.tolist()) == ([4, 3, 0, 1], [7, 8, 9, 9])


def test_closed_rows_do_not_pile_up() -> None:
    store = NumberedRows({"x": pl.Int64()})
    for low in range(0, 100_000, 1000):
        store.add(rows(range(low, low + 1000)))
        closed(store, list(range(low + 1, low + 1000)))
    assert len(store) == 100
    assert len(store._ids) < 50_000
