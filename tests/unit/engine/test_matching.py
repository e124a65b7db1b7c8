from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.matching import without_cancelled


def rows(*given: tuple[int, int, Any], dtype: Any = pl.Float64) -> Batch:
    sync, other = (np.array([row[place] for row in given], np.int64) for place in (0, 1))
    return Batch(sync, other, {"x": pl.Series("x", [row[2] for row in given], dtype)})


def left(kept: Batch | None) -> list[tuple[int, int, Any]]:
    assert kept is not None
    return list(zip(kept.sync.tolist(), kept.other.tolist(), kept.columns["x"].to_list(), strict=True))


def test_each_cancelled_row_takes_one_equal_row() -> None:
    due = rows((1, 5, 1.0), (1, 5, 1.0), (1, 5, 2.0), (2, 5, 1.0), (1, 6, 1.0))
    assert left(without_cancelled(due, rows((1, 5, 1.0)))) == [(1, 5, 1.0), (1, 5, 2.0), (2, 5, 1.0), (1, 6, 1.0)]
    assert left(without_cancelled(due, rows((1, 5, 1.0), (1, 6, 1.0), (1, 5, 1.0)))) == [(1, 5, 2.0), (2, 5, 1.0)]


def test_order_of_what_is_left_stays() -> None:
    due = rows((3, 1, 3.0), (1, 1, 1.0), (2, 1, 2.0), (0, 1, 0.0))
    assert [row[2] for row in left(without_cancelled(due, rows((1, 1, 1.0))))] == [3.0, 2.0, 0.0]


def test_null_is_null_and_nan_is_nan_but_not_each_other() -> None:
    due = rows((1, 5, None), (1, 5, float("nan")), (1, 5, 0.0))
    assert left(without_cancelled(due, rows((1, 5, float("nan"))))) == [(1, 5, None), (1, 5, 0.0)]
    assert [row[2] for row in left(without_cancelled(due, rows((1, 5, None), (1, 5, float("nan")))))] == [0.0]


def test_payloads_that_cannot_be_keys_match_too() -> None:
    due = rows((1, 5, [1, None]), (1, 5, []), dtype=pl.List(pl.Int64))
    assert left(without_cancelled(due, rows((1, 5, [1, None]), dtype=pl.List(pl.Int64)))) == [(1, 5, [])]


def test_without_columns_times_decide() -> None:
    due = Batch(np.array([1, 1, 2]), np.array([5, 5, 5]))
    kept = without_cancelled(due, Batch(np.array([1]), np.array([5])))
    assert kept is not None
    assert kept.sync.tolist() == [1, 2]


def test_nothing_to_take_back() -> None:
    due = rows((1, 5, 1.0))
    assert without_cancelled(due, None) is due
    assert without_cancelled(None, due) is None
