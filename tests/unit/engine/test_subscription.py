"""Delivery: what a subscriber is called with, when and in which order."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import SourceStateError
from squill.pushed import PushedSource
from squill.stream import Stream

SCHEMA = {"t": pl.Int64, "x": pl.Int64}


class Calls:
    """Remembers the rows of every call."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[Any, ...]]] = []

    def __call__(self, frame: pl.DataFrame) -> None:
        self.calls.append(frame.rows())

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for call in self.calls for row in call]


def intervals() -> PushedSource:
    return sq.source({"t": pl.Int64, "u": pl.Int64}, start="t", end="u")


def subscribed(stream: Stream, emit: str) -> Calls:
    calls = Calls()
    stream.subscribe(calls, emit=emit)
    return calls


def test_closed_rows_come_when_the_clock_reaches_their_end() -> None:
    source = intervals()
    calls = subscribed(source, "closed")
    source.push({"t": [1, 2], "u": [5, 3]})
    assert calls.calls == []
    source.push({"t": [3], "u": [9]})
    source.punctuate(5)
    assert calls.calls == [[(2, 3)], [(1, 5)]]


def test_closed_rows_are_ordered_by_end_then_start() -> None:
    source = intervals()
    calls = subscribed(source, "closed")
    source.push({"t": [1, 2, 3], "u": [8, 4, 4]})
    source.push({"t": [1 + 3], "u": [8]})
    source.complete()
    assert calls.calls == [[(2, 4), (3, 4)], [(1, 8), (4, 8)]]


def test_endless_rows_come_at_completion() -> None:
    source = intervals()
    calls = subscribed(source, "closed")
    source.push({"t": [1, 2], "u": [None, 3]})
    source.punctuate(1000)
    source.complete()
    assert calls.calls == [[(2, 3)], [(1, None)]]


def test_changes_come_once_time_is_past_them_with_minus_before_plus() -> None:
    source = intervals()
    calls = subscribed(source, "changes")
    source.push({"t": [1, 4], "u": [4, 6]})
    assert calls.calls == [[(1, 1)]]
    source.push({"t": [4, 9], "u": [7, None]})
    assert calls.calls[1:] == [[(4, -1), (4, 1), (4, 1), (6, -1), (7, -1)]]
    source.complete()
    assert calls.calls[2:] == [[(9, 1)]]


def test_an_open_aggregate_is_closed_at_completion() -> None:
    source = sq.source(SCHEMA, start="t", lifetime="open")
    calls = subscribed(source.count(), "closed")
    source.push({"t": [1, 5], "x": [0, 0]})
    source.complete()
    assert calls.rows == [(1, 5, 1), (5, None, 2)]


def test_several_queries_hang_on_one_source() -> None:
    source = sq.source(SCHEMA, start="t")
    all_rows, big = subscribed(source, "closed"), subscribed(source.where(sq.col("x") > 1), "closed")
    source.push({"t": [1, 2], "x": [1, 2]})
    source.complete()
    assert all_rows.rows == [(1, 2, 1), (2, 3, 2)]
    assert big.rows == [(2, 3, 2)]


def test_a_stored_input_stands_beside_a_pushed_one() -> None:
    source = sq.source(SCHEMA, start="t")
    stored = sq.from_frame({"t": [1, 5], "x": [100, 500]}, start="t")
    calls = subscribed(source.union(stored), "closed")
    source.push({"t": [3], "x": [3]})
    source.complete()
    assert calls.rows == [(1, 2, 100), (3, 4, 3), (5, 6, 500)]


def test_stop_ends_a_subscription_and_leaves_the_others() -> None:
    source = sq.source(SCHEMA, start="t")
    stopped, other = Calls(), Calls()
    subscription = source.subscribe(stopped)
    source.subscribe(other)
    source.push({"t": 1, "x": 1})
    subscription.stop()
    source.complete()
    assert stopped.calls == []
    assert other.calls == [[(1, 1, 1), (2, -1, 1)]]


def test_an_error_in_the_function_stops_its_subscription_and_is_passed_on() -> None:
    source = sq.source(SCHEMA, start="t")

    def fail(frame: pl.DataFrame) -> None:
        raise ZeroDivisionError

    subscription = source.subscribe(fail)
    source.push({"t": 1, "x": 1})
    with pytest.raises(ZeroDivisionError):
        source.complete()
    assert not subscription.active


def test_with_its_last_subscription_stopped_a_source_takes_no_rows() -> None:
    source = sq.source(SCHEMA, start="t")
    source.subscribe(Calls()).stop()
    with pytest.raises(SourceStateError, match="is not connected"):
        source.push({"t": 1, "x": 1})
