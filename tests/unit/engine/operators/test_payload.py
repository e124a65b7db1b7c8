"""Operators that change payloads, and the expressions they run."""

from __future__ import annotations

import polars as pl
import pytest

import squill as sq
from squill.engine.row_filter import LARGE
from squill.stream import Stream
from tests.unit.engine.operators.rows import points, rows


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_null_condition_is_not_true_in_batches_of_any_size(size: int) -> None:
    flags = pl.Series([True, None] * (size // 2))
    frame = pl.DataFrame({"t": range(size), "keep": flags})
    for stream in (sq.from_frame(frame, start="t"), sq.from_frame(frame), sq.from_frame(frame, start="t").shift(1)):
        assert stream.where("keep").collect().height == size // 2


def numbers() -> Stream:
    return points(1, 2, a=[1, 2], b=[10, 20])


def test_selectors_among_the_arguments_of_a_horizontal_function_are_its_arguments() -> None:
    assert rows(numbers().select(pl.sum_horizontal(pl.all()).alias("s"))) == [(1, 2, 11), (2, 3, 22)]
    assert rows(numbers().select(pl.concat_list(pl.col("a", "b") + 1))) == [(1, 2, [2, 11]), (2, 3, [3, 21])]
    assert rows(numbers().select(s=pl.struct(pl.all()))) == [(1, 2, {"a": 1, "b": 10}), (2, 3, {"a": 2, "b": 20})]


def test_a_selector_outside_gives_one_column_for_each() -> None:
    assert rows(numbers().select(pl.all() + pl.max_horizontal(pl.lit(5), pl.lit(2)))) == [(1, 2, 6, 15), (2, 3, 7, 25)]


def test_events_without_columns_are_mapped_too() -> None:
    bare = sq.from_frame({"t": [1, 2]}, start="t")
    assert rows(bare.select_many(lambda row: [{"n": 1}, {"n": 2}], schema={"n": pl.Int64})) == [
        (1, 2, 1), (1, 2, 2), (2, 3, 1), (2, 3, 2)
    ]  # fmt: skip
    counted = bare.map_batches(lambda frame: pl.DataFrame({"n": [7] * frame.height}), schema={"n": pl.Int64})
    assert rows(counted) == [(1, 2, 7), (2, 3, 7)]
