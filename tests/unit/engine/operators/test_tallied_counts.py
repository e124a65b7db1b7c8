"""Counts of many rows of one step, which are counted where their keys are remembered, are those of each row."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import squill as sq
from squill.engine.batch import Batch
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.operators import aggregate
from squill.plan.rewrite import rewrite

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


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_shards_send_what_each_step_adds_to_the_counts(key: pl.Series, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "TALLY_ROWS", 16)
    frame = pl.DataFrame({"key": key, "step": np.arange(ROWS) * 5 // ROWS * 2})
    query = sq.from_frame(frame).group_aggregate("key", n=sq.count())
    with sq.local(cores=2) as cluster:
        answers = query.progressive(sq.progress.columns("step"), on=cluster)
        assert "with_duration" in answers.explain()
        for early in answers:
            rows = frame.filter(pl.col("step") <= early.progress)
            expected = rows.group_by("key").agg(n=pl.len().cast(pl.Int64))
            assert_frame_equal(early.frame, expected, check_row_order=False)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("duration", [1, 2, 5])
def test_counts_of_windows_are_those_of_the_rows_in_them(
    key: pl.Series, duration: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "TALLY_ROWS", 16)
    frame = pl.DataFrame({"key": key, "t": np.arange(ROWS) * 7 // ROWS * 3})
    stream = sq.from_frame(frame, start="t", keep_time=True).sliding_window(duration)
    query = stream.group_aggregate("key", n=sq.count())
    # Values are asked for too, so that rows are looked at one by one.
    expected = stream.group_aggregate("key", n=sq.count(), m=sq.count_not_null("t")).select("key", "n")
    assert_frame_equal(query.collect(batch_rows=5_000, sort=True), expected.collect(sort=True))


def test_keys_of_which_nothing_is_left_are_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "TALLY_ROWS", 16)
    stream = sq.from_frame(pl.DataFrame(schema={"t": pl.Int64, "key": pl.Int64}), start="t")
    node = rewrite(stream.sliding_window(10).group_aggregate("key", n=sq.count()).plan)
    pipeline = compile_plan(node, CollectSink(node))
    ((_, entry),) = pipeline.entries
    for t in range(0, 1_000, 100):
        key = pl.Series("key", np.arange(1_000) % 50)
        entry.push(Batch(np.full(1_000, t), np.full(1_000, t + 1), {"key": key}))
        entry.advance(t + 50)
        assert pipeline.operators[-1].state_rows == 0


def test_without_keys_all_rows_are_one_count() -> None:
    query = sq.from_frame({"x": NUMBERS}).aggregate(n=sq.count())
    assert [early.frame["n"].to_list() for early in query.progressive(sq.progress.rows(20_000))] == [
        [20_000], [40_000], [60_000],
    ]  # fmt: skip
