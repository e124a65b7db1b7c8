"""Early answers are the reference's answers over the rows that are there, for any batch size and shard count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.engine.batch import DEFAULT_BATCH_ROWS
from squill.engine.operators import aggregate
from squill.errors import SquillError, UnsupportedOperatorError
from squill.plan.assignment import Assignment, Hashed
from squill.plan.node import walk
from squill.plan.nodes import FrameSource, Source
from squill.progress import at_start, columns, exponential, fractions, hashed, rows, stratified
from squill.stream import Stream
from tests.early_answers import assert_answers, expected_answers
from tests.small_batches import read_in_batches_of, tiny_batches
from tests.strategies import (
    AGGREGATES,
    PAYLOAD,
    RELATIONAL_STEPS,
    STEPS,
    VALUES,
    Allowed,
    chain,
    describe,
    queries,
    relations,
    streams,
)
from tests.strategies_two_inputs import relational_joins

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
thorough = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=SLOW,
    phases=[Phase.explicit, Phase.generate],
)

SHAPES = ((1, 1), (2, 1), (4, 1), (2, 2))
"""Cores and machines of the clusters on which the answers must be the same."""
POINTS = {"from": pl.Int64, "to": pl.Int64}


@st.composite
def samples(draw: st.DrawFn) -> Stream:
    """Draw relational data whose rows say when they come and perhaps go, some of them never there."""
    payload = st.fixed_dictionaries(
        {**VALUES, "from": st.integers(0, 5), "to": st.one_of(st.none(), st.none(), st.integers(0, 4))}
    )
    drawn = draw(st.lists(payload, max_size=10))
    for row in drawn:
        row["to"] = None if row["to"] is None else row["from"] + row["to"]
    return sq.from_frame(pl.DataFrame(drawn, schema={**PAYLOAD, **POINTS}))


def assignments(source: Source) -> st.SearchStrategy[Assignment]:
    plain = st.one_of(
        st.integers(1, 5).map(rows),
        st.integers(1, 4).map(fractions),
        st.sampled_from([at_start(), exponential(1, 2), exponential(2, 1.5), hashed("k", 3), hashed(["k", "s"], 3)]),
        st.integers(1, 2).map(lambda k: stratified("k", k)),
    )
    if "from" not in source.columns:
        return plain
    return st.one_of(st.sampled_from([columns("from", "to"), columns("from", "to"), columns("from")]), plain)


@st.composite
def chains_over_time(draw: st.DrawFn) -> Stream:
    """Draw a query over time for each k."""
    rows = draw(streams(edges=False))
    inside = Allowed(tuple(STEPS), tuple(AGGREGATES)).without_groups()
    return rows.group_apply("k", lambda group: chain(draw, group, inside, keys=("k",), depth=1, most=3))


@st.composite
def joins_over_time(draw: st.DrawFn) -> Stream:
    """Draw a join over time by k, of two streams or of a stream with itself, perhaps counted by k."""
    unit = draw(st.sampled_from(["1", "1", "ms"]))
    left = draw(streams(max_rows=8, edges=False, unit=unit))
    right = draw(st.one_of(streams(max_rows=8, edges=False, unit=unit), st.just(left), relations(max_rows=8)))
    kinds: list[Callable[[Stream, Stream], Stream]] = [
        lambda a, b: a.join(b, on="k"),
        lambda a, b: a.join(b, on="k", how="left"),
        lambda a, b: a.join(b, on=["s", "k"], how="full"),
        lambda a, b: a.where_exists(b, on="k"),
        lambda a, b: a.where_not_exists(b, on=["k", "n"]),
        lambda a, b: a.asof_join(b, on="k"),
        lambda a, b: a.select("k", "n").union(b.select("k", "n")),
    ]
    joined = draw(st.sampled_from(kinds))(left, right)
    return joined.group_apply("k", lambda group: group.count()) if draw(st.booleans()) else joined


def assert_over_time(query: Stream, data: st.DataObject) -> None:
    sources = [node for node in walk(query.plan) if isinstance(node, Source)]
    chosen = [
        at_start() if number and data.draw(st.integers(0, 2)) == 0 else hashed("k", 3) for number in range(len(sources))
    ]
    assert_early(query, chosen, data)


def assert_progressive(query: Stream, data: st.DataObject) -> None:
    sources = [node for node in walk(query.plan) if isinstance(node, Source)]
    assume(all(isinstance(source, FrameSource) and source.lifetime is None for source in sources))
    chosen = [data.draw(assignments(source)) for source in sources]
    assume(len({item for item in chosen if isinstance(item, Hashed)}) <= 1)
    assert_early(query, chosen, data)


def assert_early(query: Stream, chosen: list[Assignment], data: st.DataObject) -> None:
    coarsen = data.draw(st.sampled_from([1, 1, 2]))
    note(describe(query))
    note(f"{list(map(str, chosen))}, coarsen={coarsen}")
    try:
        expected = expected_answers(query, chosen, coarsen)
    except SquillError:
        assume(False)
    names = ["frame", *(f"frame {number}" for number in range(2, len(chosen) + 1))]
    given_to = dict(zip(names, chosen, strict=False))
    try:
        query.progressive(given_to)
    except UnsupportedOperatorError:
        assume(False)
    with pytest.MonkeyPatch.context() as patch:
        for batch_rows in (1, 3, DEFAULT_BATCH_ROWS):
            note(f"batch_rows={batch_rows}")
            read_in_batches_of(patch, batch_rows, sent=batch_rows)
            patch.setattr(aggregate, "TALLY_ROWS", batch_rows)
            assert_answers(query.progressive(given_to, coarsen=coarsen), expected)
    for cores, machines in SHAPES:
        note(f"{cores} cores, {machines} machines")
        with sq.local(cores=cores, machines=machines) as cluster:
            assert_answers(query.progressive(given_to, coarsen=coarsen, on=cluster), expected)


@pytest.fixture(scope="module", autouse=True)
def _tiny_batches() -> Iterator[None]:
    """So small that every queue fills up, every mailbox blocks and every step is cut."""
    with pytest.MonkeyPatch.context() as patch:
        tiny_batches(patch)
        yield


@thorough
@given(queries(steps=RELATIONAL_STEPS, sources=samples()), st.data())
def test_chains(query: Stream, data: st.DataObject) -> None:
    assert_progressive(query, data)


@settings(thorough, max_examples=10)
@given(relational_joins(), st.data())
def test_joins(query: Stream, data: st.DataObject) -> None:
    assert_progressive(query, data)


@thorough
@given(chains_over_time(), st.data())
def test_chains_over_time(query: Stream, data: st.DataObject) -> None:
    assert_over_time(query, data)


@thorough
@given(joins_over_time(), st.data())
def test_joins_over_time(query: Stream, data: st.DataObject) -> None:
    assert_over_time(query, data)
