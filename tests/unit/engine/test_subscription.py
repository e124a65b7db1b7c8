"""Delivery: what a subscriber is called with, when and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import SourceStateError, UserFunctionError
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


def fail(frame: pl.DataFrame) -> None:
    raise ZeroDivisionError("no")


def test_an_error_in_the_function_stops_its_subscription_and_is_raised_by_the_push() -> None:
    source = sq.source(SCHEMA, start="t")
    subscription = source.subscribe(fail)
    source.push({"t": 1, "x": 7})
    with pytest.raises(UserFunctionError, match=r"subscribe\(fail\).*ZeroDivisionError: no; .*'x': 7") as raised:
        source.complete()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert not subscription.active
    assert subscription.error is raised.value


@pytest.mark.parametrize("first", [True, False])
def test_an_error_in_one_query_leaves_the_others_on_the_same_source(first: bool) -> None:
    source = sq.source(SCHEMA, start="t")
    calls = Calls()
    functions: list[Callable[[pl.DataFrame], None]] = [fail, calls] if first else [calls, fail]
    for function in functions:
        source.subscribe(function)
    source.push({"t": 1, "x": 1})
    with pytest.raises(UserFunctionError):
        source.push({"t": 2, "x": 2})
    source.push({"t": 3, "x": 3})
    source.complete()
    assert calls.rows == [(1, 1, 1), (2, -1, 1), (2, 1, 2), (3, -1, 2), (3, 1, 3), (4, -1, 3)]


def test_an_error_in_a_function_of_the_query_names_the_operator_and_a_row() -> None:
    source = sq.source(SCHEMA, start="t")
    calls = Calls()
    failing = source.map_batches(lambda frame: 1 / 0, schema={"x": pl.Int64})
    subscription = failing.subscribe(Calls())
    source.subscribe(calls)
    with pytest.raises(UserFunctionError, match=r"map_batches.*ZeroDivisionError(.|\n)*'x': 7"):
        source.push({"t": 1, "x": 7})
    assert not subscription.active
    source.complete()
    assert calls.rows == [(1, 1, 7), (2, -1, 7)]


def test_two_queries_that_fail_are_both_told() -> None:
    source = sq.source(SCHEMA, start="t")
    both = [source.subscribe(fail), source.subscribe(fail)]
    source.push({"t": 1, "x": 7})
    with pytest.raises(UserFunctionError) as raised:
        source.complete()
    assert raised.value.__notes__ == [f"another query failed too: UserFunctionError: {both[1].error}"]


def test_a_query_that_fails_while_it_is_subscribed_leaves_its_source_free() -> None:
    source = sq.source(SCHEMA, start="t")
    stored = sq.from_frame({"t": [1], "x": [100]}, start="t")
    failing = stored.map_batches(lambda frame: 1 / 0, schema={"x": pl.Int64})
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        source.union(failing).subscribe(Calls())
    calls = subscribed(source, "closed")
    source.push({"t": 1, "x": 1})
    source.complete()
    assert calls.rows == [(1, 2, 1)]


def test_a_function_may_push_into_its_own_source() -> None:
    source = sq.source(SCHEMA, start="t")
    rows: list[Any] = []
    other = Calls()
    inside: list[int] = []

    def again(frame: pl.DataFrame) -> None:
        assert not inside, "called inside itself"
        inside.append(1)
        rows.extend(frame.rows())
        last = frame["t2"].max()
        if isinstance(last, int) and last < 5:
            source.push({"t": last + 2, "x": 0})
        inside.pop()

    source.with_columns(t2=sq.start()).subscribe(again, emit="closed")
    source.subscribe(other, emit="closed")
    source.push({"t": [1, 2], "x": [0, 0]})
    source.complete()
    assert [row[0] for row in rows] == [row[0] for row in other.rows] == [1, 2, 3, 4, 5, 6]


def test_a_function_may_push_into_another_source_which_then_runs_at_once() -> None:
    first, second = sq.source(SCHEMA, start="t"), sq.source(SCHEMA, start="t")
    calls = subscribed(second.where(sq.col("x") > 1), "changes")
    first.subscribe(lambda frame: second.push(frame.select(t="start", x="x")), emit="closed")
    first.push({"t": [1, 2, 3], "x": [1, 2, 3]})
    assert calls.rows == []
    first.push({"t": [5], "x": [5]})
    second.complete()
    assert calls.rows == [(2, 1, 2), (3, -1, 2), (3, 1, 3), (4, -1, 3)]


def test_a_function_may_stop_its_own_subscription() -> None:
    source = sq.source(SCHEMA, start="t")
    calls: list[int] = []

    def once(frame: pl.DataFrame) -> None:
        calls.append(frame.height)
        subscription.stop()

    subscription = source.subscribe(once)
    other = subscribed(source, "changes")
    for t in range(3):
        source.push({"t": t, "x": t})
    assert calls == [1]
    assert len(other.calls) == 2


def test_a_function_may_subscribe_to_more() -> None:
    source, more = sq.source(SCHEMA, start="t"), sq.source(SCHEMA, start="t")
    stored = sq.from_frame({"t": [-5], "x": [1]}, start="t")
    order: list[str] = []

    def grow(frame: pl.DataFrame) -> None:
        if not order:
            source_and_more = more.union(stored)
            source_and_more.subscribe(lambda frame: order.append("new"), emit="closed")
            more.complete()
        order.append("old")

    source.subscribe(grow)
    source.push({"t": [1, 2], "x": [1, 1]})
    assert order[-1] == "old"
    assert "new" in order


# -- several sources ------------------------------------------------------------------------------------------


def joined() -> tuple[PushedSource, PushedSource, Calls]:
    left = sq.source({"t": pl.Int64, "u": pl.Int64, "k": pl.Int64}, start="t", end="u", name="left")
    right = sq.source({"t": pl.Int64, "u": pl.Int64, "k": pl.Int64, "y": pl.Int64}, start="t", end="u", name="right")
    return left, right, subscribed(left.join(right, on="k"), "closed")


def test_a_join_of_two_sources_waits_for_the_slower_clock() -> None:
    left, right, calls = joined()
    left.push({"t": [1, 5], "u": [8, 9], "k": [1, 2]})
    right.push({"t": [2], "u": [4], "k": [1], "y": [10]})
    assert calls.rows == []
    right.punctuate(4)
    assert calls.rows == [(2, 4, 1, 10)]
    left.punctuate(100)
    right.push({"t": [6], "u": [7], "k": [2], "y": [20]})
    assert calls.rows == [(2, 4, 1, 10)]
    right.complete()
    assert calls.rows == [(2, 4, 1, 10), (6, 7, 2, 20)]


def test_one_source_may_be_completed_long_before_the_other() -> None:
    left, right, calls = joined()
    right.push({"t": [2], "u": [40], "k": [1], "y": [10]})
    right.complete()
    left.push({"t": [1], "u": [8], "k": [1]})
    left.push({"t": [30], "u": [31], "k": [1]})
    assert calls.rows == [(2, 8, 1, 10)]
    left.complete()
    assert calls.rows == [(2, 8, 1, 10), (30, 31, 1, 10)]


def test_a_source_joined_with_a_stored_table_and_shared_with_another_query() -> None:
    source = sq.source({"t": pl.Int64, "k": pl.Int64}, start="t")
    stored = sq.from_frame({"t": [0, 0], "u": [5, 10], "k": [1, 2], "name": ["a", "b"]}, start="t", end="u")
    calls, plain = subscribed(source.join(stored, on="k"), "closed"), subscribed(source, "closed")
    source.push({"t": [1, 4, 5], "k": [1, 2, 1]})
    source.complete()
    assert calls.rows == [(1, 2, 1, "a"), (4, 5, 2, "b")]
    assert len(plain.rows) == 3


def test_a_source_joined_with_itself() -> None:
    source = sq.source(SCHEMA, start="t")
    calls = subscribed(source.with_duration(3).join(source, on="x"), "closed")
    source.push({"t": [1, 2, 9], "x": [1, 1, 1]})
    source.complete()
    assert [row[:2] for row in calls.rows] == [(1, 2), (2, 3), (2, 3), (9, 10)]


def test_with_its_last_subscription_stopped_a_source_takes_no_rows() -> None:
    source = sq.source(SCHEMA, start="t")
    source.subscribe(Calls()).stop()
    with pytest.raises(SourceStateError, match="is not connected"):
        source.push({"t": 1, "x": 1})
