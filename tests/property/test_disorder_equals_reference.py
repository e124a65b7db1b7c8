"""Disorder policies give the reference's answer, or its error, however events arrive and are cut into batches."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import SquillError
from squill.plan.events import Event
from squill.plan.nodes import Disorder
from squill.stream import Stream
from squill.testing import assert_same_events, reference

TIMES = st.integers(-5, 25)
LENGTHS = st.integers(1, 9)
PAYLOADS = st.sampled_from(["a", "b"])


@st.composite
def arriving(draw: st.DrawFn, *, edges: bool) -> list[Event]:
    """Draw events in an arrival order of their own: edges with and without partners, empty intervals, punctuations."""
    events: list[tuple[int, Event]] = []
    for _ in range(draw(st.integers(0, 10))):
        start, length, x = draw(TIMES), draw(LENGTHS), draw(PAYLOADS)
        kinds = [
            "point",
            "interval",
            "endless",
            "empty",
            "punctuation",
            *(["edges", "edges", "edges", "alone"] if edges else []),
        ]
        kind = draw(st.sampled_from(kinds))
        moment = start + draw(st.integers(-4, 4))
        if kind == "point":
            events.append((moment, sq.point(start, x=x)))
        elif kind == "interval":
            events.append((moment, sq.interval(start, start + length, x=x)))
        elif kind == "endless":
            events.append((moment, sq.interval(start, None, x=x)))
        elif kind == "empty":
            events.append((moment, sq.interval(start, start, x=x)))
        elif kind == "punctuation":
            events.append((moment, sq.punctuation(start)))
        else:
            events.append((moment, sq.start_edge(start, x=x)))
            if kind == "edges":
                end = start + length
                events.append((end + draw(st.integers(-4, 4)), sq.end_edge(end, start, x=x)))
    events.sort(key=lambda item: item[0])
    return [event for _, event in events]


policies = st.one_of(
    st.just(sq.throw()),
    st.integers(0, 6).map(lambda w: sq.drop(wait=w)),
    st.integers(0, 6).map(lambda w: sq.adjust(wait=w)),
)


def outcome(stream: Stream, batch_rows: int | None) -> pl.DataFrame | type[SquillError]:
    try:
        return stream.collect(batch_rows=batch_rows)
    except SquillError as error:
        return type(error)


def meaning(stream: Stream) -> pl.DataFrame | type[SquillError]:
    try:
        return reference.frame(stream)
    except SquillError as error:
        return type(error)


@pytest.mark.parametrize("edges", [False, True])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_policies_equal_the_reference(edges: bool, data: st.DataObject) -> None:
    events: list[Event] = data.draw(arriving(edges=edges))
    policy: Disorder = data.draw(policies)
    stream = sq.from_events(events, disorder=policy, schema={"x": pl.String})
    expected = meaning(stream)
    for batch_rows in (1, 3, None):
        note(f"batch_rows={batch_rows}")
        found = outcome(stream, batch_rows)
        if isinstance(found, pl.DataFrame) and isinstance(expected, pl.DataFrame):
            assert_same_events(found, expected)
        else:
            # Of two mistakes in one batch either may be named: an end edge of nothing, and a late event.
            assert isinstance(found, type)
            assert isinstance(expected, type)
            assert issubclass(found, expected)
