"""Queries that say nothing about shards give on a cluster what they give in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.engine.operators import relational_aggregate
from squill.errors import SquillError
from squill.plan.node import walk
from squill.plan.nodes.movement import Move
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.small_batches import tiny_batches
from tests.strategies import RELATIONAL_STEPS, describe, queries, relations, streams
from tests.strategies_two_inputs import asof_joins, lookups, relational_joins

SHAPES = [(1, 1), (3, 1), (2, 2)]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
STORED = st.one_of(streams(edges=False), streams(edges=False), streams(), relations())


@pytest.fixture(scope="module", autouse=True)
def _tiny_batches() -> Iterator[None]:
    """So small that every queue fills up, every mailbox blocks and every instant is cut."""
    with pytest.MonkeyPatch.context() as patch:
        tiny_batches(patch)
        yield


def assert_same_on_clusters(query: Stream, shape: tuple[int, int]) -> int:
    """Compare with the answer of this process; return how many movements the plan has."""
    note(describe(query))
    cores, machines = shape
    with sq.local(cores=cores, machines=machines) as cluster:
        note(query.explain(on=cluster))
        try:
            expected = query.collect()
        except SquillError as error:
            with pytest.raises(type(error)):
                query.collect(on=cluster)
            return 0
        assert_same_events(query.collect(on=cluster), expected, scale=1e3)
        return sum(isinstance(node, Move) for node in walk(cluster.sharded(query).plan))


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(queries(sources=STORED, most=6), st.sampled_from(SHAPES))
def test_chains(query: Stream, shape: tuple[int, int]) -> None:
    assert_same_on_clusters(query, shape)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(queries(steps=RELATIONAL_STEPS, sources=relations(), most=5), st.sampled_from(SHAPES))
def test_relational_chains(query: Stream, shape: tuple[int, int]) -> None:
    assert_same_on_clusters(query, shape)


def test_relational_chains_whose_shards_outgrow_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relational_aggregate, "HELD_BYTES", 20)

    @settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
    @given(queries(steps=RELATIONAL_STEPS, sources=relations(), most=5), st.sampled_from(SHAPES))
    def agrees(query: Stream, shape: tuple[int, int]) -> None:
        assert_same_on_clusters(query, shape)

    agrees()


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(
    queries(
        steps=("hopping_window", "tumbling_window", "where", "aggregate", "per_window", "group_aggregate", "union"),
        aggregates=("count", "count_not_null", "sum", "mean", "min", "max"),
        sources=streams(edges=False),
        most=5,
    ),
    st.sampled_from(SHAPES[1:]),
)
def test_windowed_aggregates(query: Stream, shape: tuple[int, int]) -> None:
    assert_same_on_clusters(query, shape)


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(st.one_of(asof_joins(), lookups(), relational_joins()), st.sampled_from(SHAPES))
def test_two_inputs(query: Stream, shape: tuple[int, int]) -> None:
    assert_same_on_clusters(query, shape)
