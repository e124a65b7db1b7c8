"""The reference follows the rules for late events."""

from __future__ import annotations

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, LateEventError
from squill.plan.events import Event
from squill.plan.nodes import Disorder
from squill.testing import reference
from squill.time import INFINITY


def folded(disorder: Disorder, *events: Event) -> list[tuple[int, int]]:
    stream = sq.from_events(events, disorder, schema={})
    return [(row.start, row.end) for row in reference.run(stream)]


def test_equal_time_is_not_late() -> None:
    assert folded(sq.throw(), sq.point(5), sq.point(5)) == [(5, 6), (5, 6)]


def test_throw_names_the_event_and_both_times() -> None:
    stream = sq.from_events([sq.point(5, x=1), sq.point(3, x=2)])
    with pytest.raises(LateEventError, match=r"\{'x': 2\} has time 3, before the current time 5"):
        reference.run(stream)


def test_drop_leaves_late_rows_and_the_ends_of_late_starts_out() -> None:
    assert folded(sq.drop(), sq.point(5), sq.start_edge(3), sq.end_edge(9, 3), sq.interval(4, 90)) == [(5, 6)]


def test_drop_moves_a_late_end_to_the_current_time() -> None:
    assert folded(sq.drop(), sq.start_edge(1), sq.point(5), sq.end_edge(3, 1)) == [(1, 5), (5, 6)]


def test_wait_holds_rows_back_by_event_time() -> None:
    late: list[Event] = [sq.point(10), sq.point(6), sq.point(4)]
    assert folded(sq.drop(wait=5), *late) == [(6, 7), (10, 11)]
    assert folded(sq.drop(wait=6), *late) == [(4, 5), (6, 7), (10, 11)]


def test_an_end_edge_may_arrive_before_its_start_while_both_wait() -> None:
    assert folded(sq.throw(), sq.start_edge(3), sq.end_edge(5, 3)) == [(3, 5)]
    assert folded(sq.drop(wait=9), sq.end_edge(5, 3), sq.start_edge(3)) == [(3, 5)]


def test_punctuation_makes_what_is_before_it_late() -> None:
    assert folded(sq.drop(), sq.punctuation(5), sq.point(4), sq.point(5)) == [(5, 6)]


def test_punctuation_in_the_past_changes_nothing() -> None:
    assert folded(sq.throw(), sq.point(9), sq.punctuation(2), sq.point(9)) == [(9, 10), (9, 10)]


def test_adjust_moves_a_late_interval_that_is_not_over() -> None:
    late: list[Event] = [sq.point(9), sq.interval(5, 20), sq.interval(5, 9), sq.point(8)]
    assert folded(sq.adjust(), *late) == [(9, 10), (9, 20)]


def test_adjust_moves_a_late_start_and_its_end_follows() -> None:
    assert folded(sq.adjust(), sq.point(9), sq.start_edge(5), sq.end_edge(20, 5)) == [(9, 10), (9, 20)]


def test_adjust_ends_a_moved_start_one_tick_after_it_at_the_earliest() -> None:
    assert folded(sq.adjust(), sq.point(9), sq.start_edge(5), sq.end_edge(7, 5)) == [(9, 10), (9, 10)]


def test_adjust_matches_ends_first_in_first_out_to_the_moved_starts() -> None:
    events: list[Event] = [
        sq.start_edge(5), sq.point(9), sq.start_edge(5), sq.point(11), sq.start_edge(5),
        sq.end_edge(20, 5), sq.end_edge(24, 5),
    ]  # fmt: skip
    assert folded(sq.adjust(), *events) == [(5, INFINITY), (9, 10), (9, 20), (11, 12), (11, 24)]


def test_an_end_without_a_start_is_refused_where_nothing_may_be_late() -> None:
    with pytest.raises(InputError, match="has no start edge"):
        folded(sq.throw(), sq.end_edge(5, 3))
    assert folded(sq.drop(), sq.end_edge(5, 3)) == []


def test_equal_starts_with_different_payloads_are_different_events() -> None:
    events: list[Event] = [sq.start_edge(1, x="a"), sq.start_edge(1, x="b"), sq.end_edge(4, 1, x="b")]
    rows = reference.run(sq.from_events(events))
    assert [(row.payload["x"], row.end) for row in rows] == [("b", 4), ("a", INFINITY)]


def test_payloads_take_the_type_of_their_column() -> None:
    (row,) = reference.run(sq.from_events([sq.point(1, x=2)], schema={"x": pl.Float64}))
    assert isinstance(row.payload["x"], float)
