"""`speculate=True`: early answers over rows that still wait, taken back where they prove wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import CheckpointError, PlanError
from squill.pushed import PushedSource

SCHEMA = {"t": pl.Int64, "x": pl.Int64}


def waiting(**arguments: Any) -> PushedSource:
    return sq.source(SCHEMA, start="t", disorder=sq.drop(wait=100), **arguments)


def test_early_answers_are_sent_and_taken_back() -> None:
    source, calls = waiting(), []
    source.tumbling_window(10).count().subscribe(lambda frame: calls.append(frame.rows()), speculate=True)
    source.push({"t": 1, "x": 0})
    source.push({"t": 25, "x": 0})
    source.push({"t": 2, "x": 0})
    assert calls == [
        [(10, 1, 1), (20, -1, 1)],
        [(30, 1, 1), (40, -1, 1)],
        [(10, -1, 1), (10, 1, 2), (20, -1, 2), (20, 1, 1)],
    ]
    source.complete()
    assert len(calls) == 3, "what was sent early is right: nothing is left to say"


def test_equal_rows_are_counted() -> None:
    source, calls = waiting(), []
    source.subscribe(lambda frame: calls.append(frame.rows()), speculate=True)
    source.push({"t": [1, 1], "x": [7, 7]})
    source.push({"t": [1], "x": [7]})
    assert calls == [[(1, 1, 7), (1, 1, 7), (2, -1, 7), (2, -1, 7)], [(1, 1, 7), (2, -1, 7)]]


def test_without_waiting_the_newest_instant_is_answered_early() -> None:
    source, calls = sq.source(SCHEMA, start="t"), []
    source.subscribe(lambda frame: calls.append(frame.rows()), speculate=True)
    source.push({"t": 1, "x": 7})
    assert calls == [[(1, 1, 7), (2, -1, 7)]]


def test_rows_that_wait_for_company_in_another_source_count_too() -> None:
    left, right, calls = waiting(), waiting(max_delay="1h"), []
    left.join(right, on="x").subscribe(lambda frame: calls.append(frame.rows()), speculate=True, timer=False)
    right.push({"t": 1, "x": 7})
    left.push({"t": 1, "x": 7})
    assert calls == [[(1, 1, 7), (2, -1, 7)]]


def test_speculation_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    source = waiting()
    subscription = source.tumbling_window(10).count().subscribe(lambda frame: None, speculate=True)
    source.push({"t": 1, "x": 0})
    subscription.checkpoint(tmp_path)
    again, calls = waiting(), []
    counted = again.tumbling_window(10).count()
    counted.subscribe(lambda frame: calls.append(frame.rows()), speculate=True, restore=tmp_path)
    again.push({"t": 2, "x": 0})
    assert calls == [[(10, -1, 1), (10, 1, 2), (20, -1, 2), (20, 1, 1)]]
    with pytest.raises(CheckpointError, match='emit="changes, speculate", this one has emit="changes"'):
        waiting().tumbling_window(10).count().subscribe(print, restore=tmp_path)


def test_closed_rows_are_never_early() -> None:
    with pytest.raises(PlanError, match='speculate=True with emit="closed"'):
        waiting().subscribe(print, "closed", speculate=True)
