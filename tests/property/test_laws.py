"""Laws that hold whatever the events are."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.operators.aggregate import AggregateOperator
from squill.engine.run import drive
from squill.stream import Stream
from squill.testing import assert_same_events

lifetimes = st.lists(
    st.tuples(st.integers(-30, 30), st.integers(1, 20), st.sampled_from(["a", "b", None])), min_size=1, max_size=12
)


def stream_of(events: list[tuple[int, int, str | None]]) -> Stream:
    frame = pl.DataFrame(
        {
            "t": [start for start, _, _ in events],
            "u": [start + length for start, length, _ in events],
            "x": pl.Series([x for *_, x in events], dtype=pl.String),
        }
    )
    return sq.from_frame(frame, start="t", end="u")


def alive_by_instant(query: Stream) -> dict[int, list[str]]:
    alive: dict[int, list[str]] = {}
    for start, end, x in query.collect().rows():
        for t in range(start, end):
            alive.setdefault(t, []).append(repr(x))
    return {t: sorted(rows) for t, rows in alive.items()}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(lifetimes, st.integers(1, 9), st.integers(-5, 5))
def test_chop_then_stitch_leaves_the_same_rows_alive(
    events: list[tuple[int, int, str | None]], period: int, offset: int
) -> None:
    stream = stream_of(events)
    assert alive_by_instant(stream.chop(period, offset).stitch()) == alive_by_instant(stream)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8), st.integers(1, 9))
def test_chop_then_stitch_is_the_identity_where_equal_payloads_are_apart(
    gaps_and_lengths: list[tuple[int, int]], period: int
) -> None:
    events: list[tuple[int, int, str | None]] = []
    t = -20
    for gap, length in gaps_and_lengths:
        events.append((t + gap, length, "a"))
        t += gap + length
    stream = stream_of(events)
    assert_same_events(stream.chop(period).stitch(), stream)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lifetimes, st.integers(1, 7))
def test_shift_there_and_back_is_the_identity(events: list[tuple[int, int, str | None]], by: int) -> None:
    stream = stream_of(events)
    assert_same_events(stream.shift(by).shift(-by), stream)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lifetimes)
def test_shuffled_rows_give_the_same_answer(events: list[tuple[int, int, str | None]]) -> None:
    def query(stream: Stream) -> Stream:
        return stream.group_aggregate("x", n=sq.count(), last=sq.last("x")).stitch()

    assert_same_events(query(stream_of(events[::-1])), query(stream_of(events)))


def work_of(query: Stream) -> tuple[int, int]:
    """How many changes of rows the aggregate works through, and of how many values: its cost."""
    node = query.plan
    pipeline = compile_plan(node, CollectSink(node))
    rows = values = 0
    for operator in pipeline.operators:
        if isinstance(operator, AggregateOperator):
            schedule = operator._schedule
            run = schedule.run

            def counted(*arguments: object, run: object = run) -> object:
                nonlocal rows, values
                for deltas in run(*arguments):  # type: ignore[operator]
                    rows += deltas.count
                    values += deltas.cells
                    yield deltas

            schedule.run = counted  # type: ignore[method-assign, assignment]
    drive(pipeline)
    return rows, values


@pytest.mark.parametrize("hop", [3600, 60, 1])
def test_window_cost_does_not_grow_with_size_over_hop(hop: int) -> None:
    stream = sq.from_frame({"t": [i * 7 for i in range(500)], "k": [i % 11 for i in range(500)]}, start="t")
    windows = stream.hopping_window(3600, hop)
    rows, values = work_of(windows.group_apply("k", lambda g: g.aggregate(total=sq.sum("k"))))
    assert rows == 2 * 500
    assert values <= 2 * 500
    rows, counts = work_of(windows.group_apply("k", lambda g: g.aggregate(n=sq.count())))
    assert (rows, counts) == (0, values)  # what is counted comes and goes by the number
