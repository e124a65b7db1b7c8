"""Counts of many rows of one step, which are counted where their keys are remembered, are those of each row."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import squill as sq
from squill.engine.operators import aggregate

ROWS, STEPS = 60_000, 3
RNG = np.random.default_rng(7)
NUMBERS = RNG.integers(0, 50, ROWS)
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, 1.5])

KEYS = {
    "few numbers": pl.Series(NUMBERS),
    "some of them null": pl.Series(NUMBERS).set(pl.Series(NUMBERS == 3), None),
    "null in the last step only": pl.Series([*NUMBERS[:-1].tolist(), None]),
    "numbers of high bits": pl.Series(NUMBERS * 2**50),
    "ever new numbers": pl.Series(np.where(NUMBERS == 0, np.arange(ROWS), NUMBERS)),
    "more numbers than are remembered": pl.Series(np.arange(ROWS) % 9_000),
    "numbers that come late": pl.Series(np.where(np.arange(ROWS) < ROWS // 2, NUMBERS, NUMBERS + 100)),
    "floats": pl.Series(SPECIAL[NUMBERS % 5]),
    "dates": pl.Series(NUMBERS.astype(np.int32)).cast(pl.Date),
    "text": pl.Series(NUMBERS).cast(pl.String),
    "booleans": pl.Series(NUMBERS % 2 == 0),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_counts_of_steps_are_those_of_the_rows_so_far(key: pl.Series, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "TALLY_ROWS", 16)
    frame = pl.DataFrame({"key": key})
    query = sq.from_frame(frame).group_aggregate("key", n=sq.count())
    for early in query.progressive(sq.progress.rows(ROWS // STEPS)):
        rows = frame[: (early.progress + 1) * ROWS // STEPS]
        expected = rows.group_by("key").agg(n=pl.len().cast(pl.Int64))
        assert_frame_equal(early.frame, expected, check_row_order=False)


def test_without_keys_all_rows_are_one_count() -> None:
    query = sq.from_frame({"x": NUMBERS}).aggregate(n=sq.count())
    assert [early.frame["n"].to_list() for early in query.progressive(sq.progress.rows(20_000))] == [
        [20_000], [40_000], [60_000],
    ]  # fmt: skip
