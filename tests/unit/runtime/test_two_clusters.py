"""A plan that goes on on another cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import squill as sq
from squill.errors import PlanError
from squill.testing import assert_same_events
from tests.unit.runtime.cases import CASES, Case


@pytest.fixture
def large() -> Iterator[sq.Cluster]:
    with sq.local(cores=2, machines=2) as cluster:
        yield cluster


@pytest.fixture
def small() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as cluster:
        yield cluster


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_move_to_another_cluster_and_the_plan_goes_on_there(
    large: sq.Cluster, small: sq.Cluster, case: Case
) -> None:
    rows = large.from_frame(case.frame, start="t").query(case.before).rekey(*case.keys)
    there = rows.redistribute(to=small)
    assert there.layout == small.layout()
    assert there.keys == case.keys
    assert_same_events(there.query(case.query).collect(), case.in_process(), scale=1e4)


def test_edges_and_rows_without_times_move_too(large: sq.Cluster, small: sq.Cluster) -> None:
    rows = large.from_frame({"t": [1, 2, 5], "k": [1, 2, 1]}, start="t").rekey("k")
    counted = rows.query(lambda s: s.with_duration(None).count()).redistribute(to=small).query(lambda s: s.sum("count"))
    expected = sq.from_frame({"t": [1, 2, 5], "k": [1, 2, 1]}, start="t").with_duration(None)
    assert_same_events(counted.collect(), expected.group_apply("k", lambda g: g.count()).collect())
    relational = large.from_frame({"k": [3, 4]}).broadcast(to=small)
    assert relational.collect()["k"].sort().to_list() == [3, 3, 4, 4]


def test_inputs_of_two_clusters_meet_once_one_has_moved(large: sq.Cluster, small: sq.Cluster) -> None:
    left = small.from_frame({"t": [1, 2], "k": [1, 2]}, start="t").rekey("k")
    right = large.from_frame({"k": [2], "name": ["two"]}).rekey("k")
    with pytest.raises(PlanError, match="the inputs live on different clusters"):
        left.query(right, lambda one, other: one.join(other))
    joined = left.redistribute().query(right.redistribute(to=small), lambda one, other: one.join(other))
    assert joined.collect().rows() == [(2, 3, 2, "two")]


def test_its_own_cluster_is_all_its_shards(large: sq.Cluster) -> None:
    rows = large.from_frame({"t": [1], "k": [1]}, start="t", shards=1).rekey("k")
    assert rows.redistribute(to=large).layout == large.layout()


def test_another_thing_is_no_place(large: sq.Cluster) -> None:
    rows = large.from_frame({"t": [1], "k": [1]}, start="t")
    with pytest.raises(PlanError, match="reshard: to='there' is no place"):
        rows.reshard(to="there")  # type: ignore[arg-type]


def test_explain_shows_the_plans_of_all_clusters(large: sq.Cluster, small: sq.Cluster) -> None:
    rows = large.from_frame({"t": [1, 2], "k": [1, 2]}, start="t").query(lambda s: s.where(sq.col("k") > 1)).rekey("k")
    alone = rows.redistribute()
    there = alone.redistribute(to=small)
    met = there.query(rows.redistribute(to=small), lambda one, other: one.join(other))
    back = met.redistribute(to=large)
    text = back.explain()
    assert text.startswith(f"on {large}:\n{alone.explain()}\non {large}:\n{rows.explain()}\non {small}:\n")
    assert [line for line in text.splitlines() if line.startswith("on ")] == [
        f"on {cluster}:" for cluster in (large, large, small, large)
    ]
    assert alone.redistribute(to=small).query(there, lambda one, _: one).explain().count("where") == 1, "said once"
