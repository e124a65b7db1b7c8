"""Exact sums and magnitudes of whole columns."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from squill.engine.aggregation.whole_sums import exact_sum, largest_magnitude

LEAST, MOST = -(2**63), 2**63 - 1
edges = st.sampled_from([LEAST, LEAST + 1, -(2**32), -(2**32) - 1, -1, 0, 1, 2**32 - 1, 2**32, MOST])
chunks = st.lists(st.lists(st.none() | edges | st.integers(LEAST, MOST), max_size=40), min_size=1, max_size=3)


def column(given_chunks: list[list[int | None]]) -> pl.Series:
    return pl.concat([pl.Series(chunk, dtype=pl.Int64) for chunk in given_chunks], rechunk=False)


@settings(deadline=None)  # the first call compiles
@given(chunks)
@example([[MOST] * 9, [LEAST] * 9])
@example([[LEAST] * 9])
@example([[None, MOST, MOST, None]])
def test_the_sum_is_that_of_the_numbers(given_chunks: list[list[int | None]]) -> None:
    assert exact_sum(column(given_chunks)) == sum(value or 0 for chunk in given_chunks for value in chunk)


@settings(deadline=None)  # the first call compiles
@given(chunks)
@example([[LEAST]])
@example([[None]])
def test_the_magnitude_is_the_largest_of_all(given_chunks: list[list[int | None]]) -> None:
    expected = max((abs(value) for chunk in given_chunks for value in chunk if value is not None), default=0)
    assert largest_magnitude(column(given_chunks)) == expected


@pytest.mark.parametrize("low", [0, 3])
def test_a_slice_with_nulls_is_summed_alone(low: int) -> None:
    values = [5, None, MOST, 7, None, -2, LEAST]
    assert exact_sum(pl.Series(values)[low:]) == sum(value or 0 for value in values[low:])
