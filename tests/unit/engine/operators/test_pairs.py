"""Two events of a key side by side."""

from __future__ import annotations

import pytest

import squill as sq
from squill.errors import TimeOverflowError
from squill.stream import Stream
from tests.unit.engine.operators.rows import points, rows

START, END = sq.col("op") == "in", sq.col("op") == "out"


def log(*events: tuple[int, str, str]) -> Stream:
    times, users, operations = zip(*events, strict=True)
    return points(*times, user=list(users), op=list(operations))


def test_every_event_with_its_successor() -> None:
    assert rows(points(1, 5, 9, x=[7, 8, 9]).consecutive_pairs()) == [(5, 6, 7, 8), (9, 10, 8, 9)]


def test_successors_are_of_the_same_key_and_key_columns_come_once() -> None:
    query = points(1, 2, 3, 4, k=["a", "b", "a", "b"], x=[1, 2, 3, 4]).group_apply("k", lambda g: g.consecutive_pairs())
    assert query.schema.names == ("k", "x", "x_right")
    assert rows(query) == [(3, 4, "a", 1, 3), (4, 5, "b", 2, 4)]


def test_simultaneous_events_are_paired_in_the_order_of_the_payload() -> None:
    assert rows(points(1, 1, 1, x=[3, 1, 2]).consecutive_pairs()) == [(1, 2, 1, 2), (1, 2, 2, 3)]
    assert rows(points(1, 1, 1, x=[3, 1, 2]).consecutive_pairs(-sq.col("x"))) == [(1, 2, 2, 1), (1, 2, 3, 2)]


def test_pairs_of_columns_of_any_type() -> None:
    query = points(1, 2, v=[[1], [2, 3]]).consecutive_pairs()
    assert query.collect(batch_rows=1).rows() == [(2, 3, [1], [2, 3])]


def test_followed_by_takes_neighbours_only() -> None:
    x = sq.col("x")
    stream = points(1, 2, 3, 4, 5, x=["a", "b", "a", "c", "b"])
    assert rows(stream.followed_by(x == "a", x == "b", within=9)) == [(2, 3, "a", "b")]


def test_followed_by_is_nearer_than_within() -> None:
    stream = points(0, 4, 10, 15, x=[1, 2, 1, 2])
    x = sq.col("x")
    assert rows(stream.followed_by(x == 1, x == 2, within=5)) == [(4, 5, 1, 2)]
    assert len(rows(stream.followed_by(x == 1, x == 2, within=None))) == 2


def test_null_condition_is_not_true() -> None:
    assert rows(points(0, 1, x=[None, 2]).followed_by(sq.col("x") > 0, sq.col("x") > 0, within=5)) == []


def test_session_is_a_point_at_its_end_event() -> None:
    stream = log((1, "a", "in"), (2, "b", "in"), (3, "a", "click"), (5, "a", "out"), (9, "b", "out"))
    query = stream.sessionize(START, END, on="user")
    assert query.schema.names == ("user", "op", "op_right")
    assert rows(query) == [(5, 6, "a", "in", "out"), (9, 10, "b", "in", "out")]


def test_every_start_event_since_the_last_end_is_closed() -> None:
    stream = points(1, 2, 3, 4, 5, op=["in", "in", "out", "out", "in"], n=[1, 2, 3, 4, 5])
    assert rows(stream.sessionize(START, END)) == [(3, 4, "in", 1, "out", 3), (3, 4, "in", 2, "out", 3)]


def test_end_event_does_not_close_start_events_of_its_own_instant() -> None:
    stream = points(1, 1, 2, op=["out", "in", "out"], n=[1, 2, 3])
    assert rows(stream.sessionize(START, END)) == [(2, 3, "in", 2, "out", 3)]


def test_of_simultaneous_end_events_the_first_by_payload_counts() -> None:
    stream = points(1, 2, 2, op=["in", "out", "out"], n=[1, 9, 4])
    assert rows(stream.sessionize(START, END)) == [(2, 3, "in", 1, "out", 4)]


def test_event_may_end_one_session_and_begin_the_next() -> None:
    query = points(1, 2, 3, n=[1, 2, 3]).sessionize(sq.col("n") > 0, sq.col("n") > 0)
    assert rows(query) == [(2, 3, 1, 2), (3, 4, 2, 3)]


def test_sessions_inside_a_group_have_its_keys() -> None:
    stream = log((1, "a", "in"), (2, "b", "out"), (3, "a", "out"))
    query = stream.group_apply("user", lambda g: g.sessionize(START, END))
    assert rows(query) == [(3, 4, "a", "in", "out")]


@pytest.mark.parametrize(
    "query", [lambda s: s.consecutive_pairs(), lambda s: s.sessionize(sq.col("x") > 0, sq.col("x") > 0)]
)
def test_events_before_time_are_refused(query: object) -> None:
    united = points(1, x=[1]).union(sq.from_frame({"x": [2]}))
    with pytest.raises(TimeOverflowError, match="without a start"):
        query(united).collect()  # type: ignore[operator]


def test_within_may_reach_beyond_time() -> None:
    stream = points(-(2**62), 2**62, x=[1, 2])
    x = sq.col("x")
    assert rows(stream.followed_by(x == 1, x == 2, within=2**63 - 2)) == []
    assert len(rows(stream.followed_by(x == 1, x == 2, within=None))) == 1
    assert len(rows(points(0, 2**62, x=[1, 2]).followed_by(x == 1, x == 2, within=2**63 - 2))) == 1
