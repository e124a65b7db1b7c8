"""A plan read from its text is the plan that was written: the same in words, in fingerprint and in its answer."""

from __future__ import annotations

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import SquillError
from squill.plan.fingerprint import fingerprint
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.strategies import RELATIONAL_STEPS, describe, queries, relations, streams
from tests.strategies_two_inputs import asof_joins, lookups, relational_joins

thorough = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def assert_same_plan(query: Stream) -> None:
    note(describe(query))
    text = query.to_json(allow_code=True)
    again = sq.from_json(text, allow_code=True)
    assert again.explain() == query.explain()
    assert fingerprint(again.plan) == fingerprint(query.plan)
    assert again.schema == query.schema
    try:
        expected = query.collect()
    except SquillError:
        return
    assert_same_events(again.collect(), expected)


@thorough
@given(queries(sources=streams(edges=True), most=5))
def test_temporal_plans(query: Stream) -> None:
    assert_same_plan(query)


@thorough
@given(queries(steps=RELATIONAL_STEPS, sources=relations(), most=4))
def test_relational_plans(query: Stream) -> None:
    assert_same_plan(query)


@thorough
@given(st.one_of(asof_joins(), lookups(), relational_joins()))
def test_plans_with_two_inputs(query: Stream) -> None:
    assert_same_plan(query)
