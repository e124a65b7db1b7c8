"""Sums over relational data: their types, and what leaves 64 bits."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import NumericOverflowError

MOST = 2**63 - 1
LEAST = -(2**63)


def whole(x: pl.Series, **options: Any) -> pl.Series:
    return sq.from_frame(pl.DataFrame({"x": x})).aggregate(s=sq.sum("x", **options)).collect()["s"]


def grouped(x: pl.Series, **options: Any) -> pl.Series:
    frame = pl.DataFrame({"x": x}).with_columns(k=pl.lit("a"))
    return sq.from_frame(frame).group_aggregate("k", s=sq.sum("x", **options)).collect()["s"]


@pytest.mark.parametrize("total", [whole, grouped])
class TestSums:
    @pytest.mark.parametrize("values", [[MOST, 1], [LEAST, -1], [None, MOST, 1, None], [MOST] * 5, [2**62] * 2])
    def test_a_sum_that_leaves_64_bits_is_refused(self, total: Any, values: list[int | None]) -> None:
        with pytest.raises(NumericOverflowError, match=r"aggregate sum\(x\): the sum leaves the 64-bit range"):
            total(pl.Series(values))

    @pytest.mark.parametrize(
        "values",
        [[MOST, MOST, LEAST, LEAST + 1], [MOST], [LEAST], [LEAST, -5, 5], [None, MOST, -1], [2**62, 2**62, -1]],
    )
    def test_only_the_true_value_counts(self, total: Any, values: list[int | None]) -> None:
        answer = total(pl.Series(values))
        assert answer.dtype == pl.Int64
        assert answer.to_list() == [sum(value or 0 for value in values)]

    def test_values_that_the_condition_leaves_out_do_not_count(self, total: Any) -> None:
        assert total(pl.Series([MOST, 5, 6]), where=sq.col("x") < 10).to_list() == [11]

    @pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32])
    def test_short_integers_are_added_in_64_bits(self, total: Any, dtype: Any) -> None:
        largest = dtype.max()
        top = pl.select(largest).item()
        answer = total(pl.Series([top, top, None, top], dtype=dtype))
        assert answer.dtype == pl.Int64
        assert answer.to_list() == [3 * top]

    def test_nulls_alone_sum_to_nothing(self, total: Any) -> None:
        assert total(pl.Series([None, None], dtype=pl.Int64)).to_list() == [0]


def test_exact_and_other_aggregates_stand_in_the_order_they_were_asked() -> None:
    frame = pl.DataFrame({"x": [1, 2, None], "y": [0.5, 1.5, 2.0]})
    answer = sq.from_frame(frame).aggregate(
        n=sq.count(), a=sq.sum("x"), b=sq.sum("y"), c=sq.sum("x") * 2, m=sq.max("x"), v=sq.count_not_null("x")
    )
    assert answer.collect().to_dicts() == [{"n": 3, "a": 3, "b": 4.0, "c": 6, "m": 2, "v": 2}]


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_the_pieces_rows_come_in_do_not_matter(batch_rows: int) -> None:
    stream = sq.from_frame({"x": [MOST, MOST, LEAST, LEAST, 7]}).aggregate(s=sq.sum("x"))
    assert stream.collect(batch_rows=batch_rows).rows() == [(5,)]
