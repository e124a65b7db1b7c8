"""`sq.from_events` shows which events came too late."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import polars as pl
import pytest

import squill as sq
from squill.errors import LateEventError
from squill.plan.events import Event
from squill.plan.nodes import Disorder


def test_events_in_order_are_not_late() -> None:
    late = sq.from_events([sq.point(1, x="a"), sq.point(1, x="b"), sq.point(4, x="c")]).late
    assert late.is_empty()
    assert late.schema == {"start": pl.Int64, "end": pl.Int64, "x": pl.String, "late_by": pl.Int64}


@pytest.mark.parametrize("policy", [sq.drop, sq.adjust])
def test_late_events_are_shown_as_they_were_given(policy: Callable[[], Disorder]) -> None:
    events: list[Event] = [
        sq.point(9, x=1),
        sq.interval(4, 20, x=2),
        sq.start_edge(7, x=3),
        sq.end_edge(8, 7, x=3),
        sq.point(9, x=4),
    ]
    stream = sq.from_events(events, disorder=policy())
    assert stream.late.rows() == [(4, 20, 2, 5), (7, None, 3, 2), (7, 8, 3, 1)]
    assert stream.late.equals(stream.late)


def test_stragglers_that_are_waited_for_are_not_late() -> None:
    events = [sq.point(t, x=t) for t in (10, 7, 4, 20, 16, 14)]
    assert sq.from_events(events, disorder=sq.drop(wait=5)).late.rows() == [(4, 5, 4, 1), (14, 15, 14, 1)]


def test_a_punctuation_makes_what_is_before_it_late() -> None:
    events: list[Event] = [sq.point(1, x=1), sq.punctuation(8), sq.point(5, x=2), sq.point(8, x=3)]
    assert sq.from_events(events, disorder=sq.drop()).late.rows() == [(5, 6, 2, 3)]


def test_lateness_is_a_duration_where_times_are_dates() -> None:
    events = [sq.point(dt.date(2020, 1, 5), x=1), sq.point(dt.date(2020, 1, 2), x=2)]
    assert sq.from_events(events, disorder=sq.drop()).late["late_by"].to_list() == [dt.timedelta(days=3)]


def test_under_throw_asking_raises_as_a_query_does() -> None:
    stream = sq.from_events([sq.point(9, x=1), sq.point(4, x=2)])
    with pytest.raises(LateEventError, match="before the current time 9"):
        _ = stream.late


def test_kept_and_late_events_are_all_events_under_drop() -> None:
    events = [sq.point(t, x=t) for t in (5, 3, 9, 1, 9, 8, 30)]
    stream = sq.from_events(events, disorder=sq.drop(wait=1))
    assert sorted(stream.collect()["x"].to_list() + stream.late["x"].to_list()) == [1, 3, 5, 8, 9, 9, 30]


def test_operators_over_it_are_plain_streams() -> None:
    stream = sq.from_events([sq.point(5, x=1)], disorder=sq.drop()).where(sq.col("x") > 0)
    assert type(stream) is sq.Stream
