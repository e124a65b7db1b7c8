"""The engine gives the reference's answer, or its error, for random queries and every batch size."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from squill.engine.operators import relational_aggregate
from squill.errors import SquillError
from squill.plan.nodes import Chop
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.dividing import divide_early
from tests.strategies import AGGREGATES, RELATIONAL_STEPS, STEPS, describe, queries, relations, streams

# What the engine cannot run yet; the lists only get shorter.
STEPS_NOT_YET: frozenset[str] = frozenset()
AGGREGATES_NOT_YET: frozenset[str] = frozenset()
HAS_EVENTS_SOURCE = True

ENABLED = tuple(name for name in STEPS if name not in STEPS_NOT_YET)
ENABLED_AGGREGATES = tuple(name for name in AGGREGATES if name not in AGGREGATES_NOT_YET)
BATCH_ROWS = (1, 2, 3, 7, None)

thorough = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def outcome(answer: pl.DataFrame | SquillError) -> str:
    return "an answer" if isinstance(answer, pl.DataFrame) else type(answer).__name__


def meaning(query: Stream) -> pl.DataFrame | SquillError:
    try:
        return reference.frame(query)
    except SquillError as error:
        return error


def answer(query: Stream, batch_rows: int | None) -> pl.DataFrame | SquillError:
    try:
        return query.collect(batch_rows=batch_rows)
    except SquillError as error:
        return error


def assert_engine_agrees(query: Stream) -> None:
    note(describe(query))
    expected = meaning(query)
    for batch_rows in BATCH_ROWS:
        note(f"batch_rows={batch_rows}")
        found = answer(query, batch_rows)
        assert outcome(found) == outcome(expected), found
        if isinstance(found, pl.DataFrame) and isinstance(expected, pl.DataFrame):
            assert_same_events(found, expected, scale=1e3)
            assert_ordered_by_start(found)


def assert_ordered_by_start(frame: pl.DataFrame) -> None:
    if "start" in frame.columns:
        assert frame["start"].is_sorted()


def asked(steps: Iterable[str], sources: st.SearchStrategy[Stream], most: int = 4) -> st.SearchStrategy[Stream]:
    return queries(steps=tuple(steps), aggregates=ENABLED_AGGREGATES, sources=sources, most=most)


@thorough
@given(asked(ENABLED, streams(edges=HAS_EVENTS_SOURCE)))
def test_temporal_queries(query: Stream) -> None:
    assert_engine_agrees(query)


@settings(thorough, max_examples=60)
@given(streams(edges=HAS_EVENTS_SOURCE), st.integers(1, 5), st.integers(-3, 3), st.integers(-5, 30))
def test_chops_that_end(stream: Stream, period: int, offset: int, until: int) -> None:
    assert_engine_agrees(Stream(Chop(parent=stream.plan, period=period, offset=offset, until=until)))


@thorough
@given(asked((name for name in ENABLED if name in RELATIONAL_STEPS), relations()))
def test_relational_queries(query: Stream) -> None:
    assert_engine_agrees(query)


@pytest.mark.parametrize("held", [0, 50])
def test_relational_queries_over_more_than_is_held(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come from what may be larger than memory, and a few bytes are too many to hold."""
    monkeypatch.setattr(relational_aggregate, "_may_outgrow_memory", lambda _: True)
    monkeypatch.setattr(relational_aggregate, "HELD_BYTES", held)

    @settings(thorough, max_examples=60)
    @given(asked(("group_aggregate", "aggregate", "where", "select"), relations()))
    def agrees(query: Stream) -> None:
        assert_engine_agrees(query)

    agrees()


def test_relational_queries_whose_groups_are_more_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    divide_early(monkeypatch)

    @settings(thorough, max_examples=60)
    @given(asked(("group_aggregate", "aggregate", "distinct", "where", "select"), relations()))
    def agrees(query: Stream) -> None:
        assert_engine_agrees(query)

    agrees()


@pytest.mark.faults
@settings(thorough, max_examples=1_000, derandomize=False, print_blob=True)
@given(asked(ENABLED, streams(edges=HAS_EVENTS_SOURCE), most=6))
def test_a_thousand_other_chains(query: Stream) -> None:
    """Other ones every time, and longer: too many for every day."""
    assert_engine_agrees(query)


@pytest.mark.parametrize("step", ENABLED)
def test_each_step_alone(step: str) -> None:
    """Every enabled step gets its share of examples, over streams as they are read."""

    @settings(thorough, max_examples=25)
    @given(asked([step], streams(edges=HAS_EVENTS_SOURCE, max_rows=20), most=1))
    def agrees(query: Stream) -> None:
        assert_engine_agrees(query)

    agrees()
