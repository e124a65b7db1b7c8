"""Lifetimes and windows up to the ends of time: the reference's answer or its error, and never a time gone wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import SquillError, TimeOverflowError, UnboundedResultError
from squill.plan.events import Event
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from squill.time import INFINITY, MINUS_INFINITY

FIRST, LAST = MINUS_INFINITY + 1, INFINITY - 1
landmarks = st.sampled_from(
    [FIRST, FIRST, FIRST + 30, -(2**62), -(2**61), -100, 0, 100, 2**61, 2**62, LAST - 60, LAST - 15, LAST - 15]
)
times = st.builds(lambda t, more: t + more, landmarks, st.integers(0, 15))
sizes = st.sampled_from([1, 5, 7, 7, 10, 1000, 2**61, 2**61 + 1, 2**62 + 3, LAST - 3, LAST])
offsets = st.sampled_from([0, -3, 20, 2**61, -(2**62), 2**62 + 1, FIRST, LAST, LAST // 3])
lifetime = st.one_of(
    st.tuples(times, times).map(sorted),
    st.tuples(times, st.integers(1, 25)).map(lambda pair: [pair[0], min(pair[0] + pair[1], LAST)]),
).filter(lambda pair: pair[0] < pair[1])
row = st.tuples(lifetime, st.integers(0, 9), st.integers(0, 1), st.sampled_from([1, 2, 30, 2**62, -1, -(2**62)]))
rows = st.lists(row, min_size=1, max_size=3)

Rows = list[tuple[list[int], int, int, int]]
Operator = Callable[[Stream, int, int, int], Stream]


def table(drawn: Rows) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "t": [start for (start, _), *_ in drawn],
            "u": [end if ending else None for (_, end), ending, *_ in drawn],
            "k": [k for *_, k, _ in drawn],
            "n": [n for *_, n in drawn],
        },
        schema={"t": pl.Int64, "u": pl.Int64, "k": pl.Int64, "n": pl.Int64},
    )


def events(drawn: Rows) -> Stream:
    timed: list[tuple[int, int, Event]] = []
    for (start, end), ending, k, n in drawn:
        timed.append((start, 1, sq.start_edge(start, k=k, n=n)))
        if ending:
            timed.append((end, 0, sq.end_edge(end, start, k=k, n=n)))
        timed.append((start + 1, 2, sq.punctuation(start + 1)))
    timed.sort(key=lambda item: item[:2])
    return sq.from_events([event for *_, event in timed], schema={"k": pl.Int64, "n": pl.Int64})


SOURCES: dict[str, Callable[[Rows], Stream]] = {
    "points": lambda drawn: sq.from_frame(table(drawn).drop("u"), start="t"),
    "intervals": lambda drawn: sq.from_frame(table(drawn), start="t", end="u"),
    "edges": events,
    "one without a start": lambda drawn: SOURCES["intervals"](drawn[:2]).union(
        sq.from_frame(table(drawn[:1]).select("k", "n"))
    ),
}
OPERATORS: dict[str, Operator] = {
    "with_duration": lambda s, size, hop, offset: s.with_duration(size),
    "with_duration, an expression": lambda s, size, hop, offset: s.with_duration(sq.col("n")),
    "with_duration, of 64 bits": lambda s, size, hop, offset: s.with_duration(
        pl.lit(2**64 - 1 - size, pl.UInt64) if hop > 7 else pl.lit(size, pl.UInt64)
    ),
    "with_duration, endless": lambda s, size, hop, offset: s.with_duration(None),
    "alter_lifetime": lambda s, size, hop, offset: s.alter_lifetime(start=sq.start() // 4 * 4, duration=size),
    "shift": lambda s, size, hop, offset: s.shift(offset),
    "extend": lambda s, size, hop, offset: s.extend(offset),
    "clip": lambda s, size, hop, offset: s.clip(size),
    "clip by a stream": lambda s, size, hop, offset: s.clip(s.shift(3), on="k"),
    "point_at_end": lambda s, size, hop, offset: s.point_at_end(),
    "chop": lambda s, size, hop, offset: s.chop(max(hop, 2**61), offset),
    "stitch": lambda s, size, hop, offset: s.chop(max(hop, 2**61), offset).stitch(),
    "quantize": lambda s, size, hop, offset: s.quantize(size, hop, offset),
    "quantize with progress": lambda s, size, hop, offset: s.quantize(size, 5 * (hop // 5 or 1), offset, progress=1),
    "wait_for_ends": lambda s, size, hop, offset: s.wait_for_ends(),
    "tumbling_window": lambda s, size, hop, offset: s.tumbling_window(size, offset),
    "hopping_window": lambda s, size, hop, offset: s.hopping_window(size, hop, offset),
    "hopping_window, right": lambda s, size, hop, offset: s.hopping_window(size, hop, offset, "right"),
    "hopping_window, counted": lambda s, size, hop, offset: s.hopping_window(size, hop, offset).count(),
    "per_window": lambda s, size, hop, offset: s.tumbling_window(size, offset).count().per_window(),
    "session_window": lambda s, size, hop, offset: s.session_window(size, hop),
    "session_window, final": lambda s, size, hop, offset: s.session_window(size, hop, rows="final"),
    "session_window, by key": lambda s, size, hop, offset: s.group_apply("k", lambda g: g.session_window(size)),
    "count_window": lambda s, size, hop, offset: s.count_window(2),
}


def outcome(answer: Callable[[], pl.DataFrame]) -> pl.DataFrame | type[SquillError]:
    try:
        return answer()
    except SquillError as error:
        return type(error)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_answer_or_the_error_is_that_of_the_reference(operator: str) -> None:
    answers = errors = 0

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.sampled_from(list(SOURCES)), rows, sizes, sizes, offsets, st.sampled_from([None, 1]))
    def agrees(source: str, drawn: Rows, size: int, hop: int, offset: int, batch_rows: int | None) -> None:
        nonlocal answers, errors
        query = OPERATORS[operator](SOURCES[source](drawn), size, hop, offset)
        note(query.explain())
        expected = outcome(lambda: reference.frame(query))
        found = outcome(lambda: query.collect(batch_rows=batch_rows))
        if isinstance(found, pl.DataFrame) and isinstance(expected, pl.DataFrame):
            assert_same_events(found, expected)
            answers += 1
        else:
            assert found is expected
            errors += 1

    agrees()
    assert answers >= 5
    if operator not in ("count_window", "wait_for_ends", "with_duration, endless"):
        assert errors


units = st.sampled_from(["ns", "us", "ms"])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows, units, st.sampled_from(["d", "ms", "us", "ns"]))
def test_times_in_another_unit(drawn: Rows, unit: Any, other: str) -> None:
    frame = table(drawn).with_columns(pl.col("t", "u").cast(pl.Datetime(unit)))
    query = sq.from_frame(frame, start="t", end="u").cast_time(other)
    expected, found = outcome(lambda: reference.frame(query)), outcome(query.collect)
    if isinstance(found, pl.DataFrame) and isinstance(expected, pl.DataFrame):
        # Python has no dates that far away: the numbers are compared.
        numbers = pl.col("start", "end").to_physical()
        assert_same_events(found.with_columns(numbers), expected.with_columns(numbers))
    else:
        assert found is expected


def lifetimes(query: Stream) -> list[tuple[Any, ...]]:
    return query.collect(sort=True).select("start", "end").rows()


def at(*starts: int) -> Stream:
    return sq.from_frame({"t": list(starts), "x": [1] * len(starts)}, start="t")


def test_windows_reach_the_last_tick_there_is() -> None:
    assert lifetimes(at(LAST - 10).tumbling_window(5, LAST)) == [(LAST - 5, LAST)]
    with pytest.raises(TimeOverflowError):
        at(LAST - 5).tumbling_window(5, LAST).collect()
    assert lifetimes(at(FIRST).tumbling_window(5, FIRST + 1)) == [(FIRST + 1, FIRST + 6)]


def test_a_session_may_be_longer_than_the_rest_of_time() -> None:
    assert lifetimes(at(LAST - 10).session_window(10, LAST)) == [(LAST - 10, LAST)]
    with pytest.raises(TimeOverflowError):
        at(LAST - 10).session_window(10, rows="final").collect()


def test_an_event_that_a_limit_beyond_time_meets_may_still_end() -> None:
    begun = sq.start_edge(LAST - 10, x=1)
    ended = sq.from_events([begun, sq.end_edge(LAST - 2, LAST - 10, x=1)]).clip(100)
    assert lifetimes(ended) == [(LAST - 10, LAST - 2)]
    with pytest.raises(TimeOverflowError):
        sq.from_events([begun]).clip(100).collect()


def test_an_event_that_no_grid_point_cuts_must_still_end() -> None:
    begun = sq.start_edge(LAST - 10, x=1)
    chopped = sq.from_events([begun, sq.end_edge(LAST - 2, LAST - 10, x=1)]).chop(2**62)
    assert lifetimes(chopped) == [(LAST - 10, LAST - 2)]
    with pytest.raises(UnboundedResultError):
        sq.from_events([begun]).chop(2**62).collect()


def test_a_removed_event_has_no_time_to_overflow() -> None:
    assert at(FIRST, LAST - 2).with_duration(sq.col("x") * -100).collect().is_empty()
