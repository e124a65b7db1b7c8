"""The strategies draw valid plans, and the reference gives every one of them an answer or a named error."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, find, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import InputError, NumericOverflowError, UnboundedResultError
from squill.plan.nodes import Source
from squill.stream import Stream
from squill.testing import assert_same_events, from_rows, reference
from tests.strategies import STEPS, describe, queries, streams

# What data can rightly bring about; anything else is a bug of the reference or of the strategies.
DATA_ERRORS = (InputError, NumericOverflowError, UnboundedResultError)

relaxed = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(queries())
def test_every_query_has_a_meaning(query: Stream) -> None:
    note(describe(query))
    try:
        rows = reference.run(query)
    except DATA_ERRORS:
        return
    assert all(row.start < row.end for row in rows)
    assert all(tuple(row.payload) == query.schema.names for row in rows)
    assert_same_events(reference.frame(query), rows)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_is_reached(step: str) -> None:
    def is_more_than_a_source(query: Stream) -> bool:
        return not isinstance(query.plan, Source)

    generous = settings(relaxed, max_examples=500, phases=[Phase.generate])
    found = find(queries(steps=[step], sources=streams(), most=2), is_more_than_a_source, settings=generous)
    assert is_more_than_a_source(found)


@relaxed
@given(streams(calendar=False), st.randoms(use_true_random=False))
def test_the_order_of_input_rows_does_not_matter(stream: Stream, chance: random.Random) -> None:
    rows = reference.run(stream)
    shuffled = chance.sample(rows, len(rows))
    answers = [
        reference.run(from_rows(listed, stream.schema).aggregate(a=sq.collect_list("n"), b=sq.last("s")))
        for listed in (rows, shuffled)
    ]
    assert_same_events(*answers)
