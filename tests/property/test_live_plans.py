"""Random queries over live inputs in random epochs, with restarts, at times on more shards: the answer of collect()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import SquillError
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.live_plans import EMITS, AsLive, Cut, assert_live_gives, run_live
from tests.strategies import describe, queries, streams
from tests.strategies_two_inputs import asof_joins, lookups

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

# For one shard the planner writes no movements: on more the same query is another plan, which a checkpoint refuses.
cuts = st.builds(
    lambda counts, **how: Cut(shards=counts[0], grows=counts[1], **how),
    st.sampled_from([(1, 1), (3, 1), (2, 2), (3, 2)]),
    seed=st.integers(0, 1 << 30),
    waits=st.booleans(),
    restarts=st.booleans(),
)


def assert_same_live(query: Stream, emit: str, cut: Cut) -> None:
    note(describe(query))
    note(str(cut))
    assume(query.time is not None and AsLive(query, cut.stored).nodes)
    try:
        expected = query.collect()
    except SquillError:
        assume(False)
    if "start" not in expected.columns:
        emit = "closed"  # rows per window have no times that could change
    assert_live_gives(query, emit, cut, expected, scale=1e3)


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(queries(sources=streams(special=False), most=4), st.sampled_from(EMITS), cuts)
def test_chains(query: Stream, emit: str, cut: Cut) -> None:
    assert_same_live(query, emit, cut)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(st.one_of(asof_joins(), lookups()), st.sampled_from(EMITS), cuts, st.sampled_from([-1, 0, 1]))
def test_two_inputs_of_which_one_may_be_stored(query: Stream, emit: str, cut: Cut, stored: int) -> None:
    assert_same_live(query, emit, replace(cut, stored=stored))


TWO: dict[str, Callable[[Stream, Stream], Stream]] = {
    "join": lambda a, b: a.join(b.rename({"x": "y"}), on="k"),
    "full join": lambda a, b: a.with_duration(7).join(b.rename({"x": "y"}).with_duration(9), on="k", how="full"),
    "join without a key": lambda a, b: a.join(b.rename({"x": "y", "k": "l"}), how="cross"),
    "as of": lambda a, b: a.asof_join(b.rename({"x": "y"}), on="k"),
    "exists": lambda a, b: a.where_exists(b, on="k"),
    "not exists": lambda a, b: a.with_duration(20).where_not_exists(b.with_duration(5), on="k"),
    "union": lambda a, b: a.union(b).group_apply("k", lambda g: g.hopping_window(10, 5).aggregate(n=sq.count())),
    "clip": lambda a, b: a.with_duration(None).clip(b, on="k"),
    "chain": lambda a, b: (
        a.group_aggregate("k", n=sq.count()).join(b.with_duration(8), on="k").aggregate(m=sq.max("n"))
    ),
}

Frame = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 15), st.integers(0, 3), st.integers(-5, 5)), max_size=15
).map(
    lambda rows: pl.DataFrame(
        [(t, t + d, k, x) for t, d, k, x in rows], schema={"t": pl.Int64, "u": pl.Int64, "k": pl.Int64, "x": pl.Int64},
        orient="row",
    )
)  # fmt: skip


@pytest.mark.parametrize("stored", [-1, 0, 1])
@pytest.mark.parametrize("name", TWO)
def test_two_live_inputs(name: str, stored: int) -> None:
    @settings(max_examples=4, deadline=None, suppress_health_check=SLOW)
    @given(Frame, Frame, st.sampled_from(EMITS), cuts)
    def agrees(one: pl.DataFrame, other: pl.DataFrame, emit: str, cut: Cut) -> None:
        query = TWO[name](sq.from_frame(one, start="t", end="u"), sq.from_frame(other, start="t", end="u"))
        assert_same_live(query, emit, replace(cut, stored=stored))

    agrees()


@pytest.mark.faults
@pytest.mark.parametrize("name", TWO)
def test_two_inputs_that_go_on_from_stored_rows(name: str) -> None:
    @settings(max_examples=10, deadline=None, suppress_health_check=SLOW)
    @given(Frame, Frame, st.integers(0, 1 << 30), st.sampled_from([1, 3]))
    def agrees(one: pl.DataFrame, other: pl.DataFrame, seed: int, shards: int) -> None:
        query = TWO[name](sq.from_frame(one, start="t", end="u"), sq.from_frame(other, start="t", end="u"))
        assert_same_live(query, "closed", Cut(seed=seed, shards=shards, begins=True))

    agrees()


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_per_window_come_in_the_order_of_their_windows(shards: int) -> None:
    rows = sq.from_frame({"t": [1, 5, 12, 14, 29], "k": [1, 2, 1, 2, 1]}, start="t")
    query = rows.group_apply("k", lambda g: g.hopping_window(10, 5).count()).per_window()
    found = run_live(query, "closed", Cut(seed=1, shards=shards))
    assert_same_events(found, query.collect())
    assert found.get_column("window_end").is_sorted()
