from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import squill as sq
from squill.plan.layout import Layout
from squill.plan.placement import COPY, Placement, agree

LAYOUT = Layout(shards=4, cores=4)
PLACED = Placement.hashed(("a", "b"), LAYOUT)


@pytest.fixture
def placed() -> Iterator[sq.ShardedStream]:
    with sq.local(cores=4) as cluster:
        source = cluster.from_frame({"t": [1], "a": [1], "b": ["x"], "c": [1.0]}, start="t")
        yield source.rekey("a", "b").redistribute()


Query = Callable[[sq.Stream], sq.Stream]
KEPT: dict[str, Query] = {
    "where": lambda s: s.where(sq.col("c") > 0),
    "select": lambda s: s.select("c"),
    "with_columns": lambda s: s.with_columns(d=sq.col("a") + 1),
    "window": lambda s: s.hopping_window(10, 5),
    "aggregate": lambda s: s.with_duration(5).count(),
    "group": lambda s: s.group_apply("c", lambda g: g.count()),
}


@pytest.mark.parametrize("query", KEPT.values(), ids=KEPT)
def test_placement_lasts_as_long_as_its_columns(placed: sq.ShardedStream, query: Query) -> None:
    assert placed.query(query).placement == PLACED


def test_source_has_no_placement() -> None:
    with sq.local(cores=4) as cluster:
        assert cluster.from_frame({"t": [1]}, start="t").placement is None


LOST: dict[str, Query] = {
    "changed": lambda s: s.with_columns(a=sq.col("a") + 1),
    "dropped": lambda s: s.drop("a"),
    "renamed": lambda s: s.rename({"a": "z"}),
    "aggregated away": lambda s: s.with_duration(5).count(),
}


@pytest.mark.parametrize("query", LOST.values(), ids=LOST)
def test_placement_is_lost_with_its_columns(placed: sq.ShardedStream, query: Query) -> None:
    assert placed.rekey("b").query(query).placement is None


def test_rekey_moves_nothing(placed: sq.ShardedStream) -> None:
    assert placed.rekey("c").placement == PLACED


@pytest.fixture
def rows() -> Iterator[sq.ShardedStream]:
    with sq.local(cores=2, machines=3) as cluster:
        yield cluster.from_frame({"t": [1], "a": [1], "b": [2]}, start="t").rekey("a")


GRID = Layout(shards=6, cores=2)


def test_a_local_and_a_global_movement_make_a_flat_one(rows: sq.ShardedStream) -> None:
    flat = Placement.hashed(("a",), GRID)
    assert rows.redistribute().placement == flat
    assert rows.redistribute(scope="local").redistribute(scope="global").placement == flat
    assert rows.redistribute(scope="global").redistribute(scope="local").placement == flat


def test_each_scope_settles_one_coordinate(rows: sq.ShardedStream) -> None:
    assert rows.redistribute(scope="local").placement == Placement(layout=GRID, inside=("a",))
    assert rows.redistribute(scope="global").placement == Placement(layout=GRID, across=("a",))
    assert rows.broadcast(scope="global").placement == Placement(layout=GRID, across=COPY)
    assert rows.broadcast().placement == Placement(layout=GRID, across=COPY, inside=COPY)
    one_copy_per_machine = rows.broadcast(scope="global").redistribute(scope="local")
    assert one_copy_per_machine.placement == Placement(layout=GRID, across=COPY, inside=("a",))


def test_spraying_forgets_the_placement(rows: sq.ShardedStream) -> None:
    assert rows.redistribute().reshard().placement is None
    assert rows.redistribute().reshard(scope="local").placement == Placement(layout=GRID, across=("a",))
    assert rows.redistribute().multicast(sq.col("b")).placement is None


def test_inputs_agree_where_rows_of_equal_keys_meet() -> None:
    hashed, copied = Placement.hashed(("a",), GRID), Placement(layout=GRID, across=COPY, inside=COPY)
    in_machine = Placement(layout=GRID, inside=("a",))
    assert agree(hashed, hashed, ("a",), GRID)
    assert agree(hashed, hashed, ("a", "b"), GRID)
    assert not agree(hashed, hashed, ("b",), GRID)
    assert agree(None, copied, ("b",), GRID)
    assert not agree(None, None, ("a",), GRID)
    assert not agree(in_machine, in_machine, ("a",), GRID)
    assert agree(in_machine, Placement(layout=GRID, across=COPY, inside=("a",)), ("a",), GRID)
    assert agree(None, None, ("a",), Layout(shards=1))


def test_pairs_live_where_the_row_that_was_not_copied_lives(rows: sq.ShardedStream) -> None:
    other = rows.query(lambda s: s.select(c=sq.col("b"))).broadcast()
    placed = rows.redistribute()
    assert placed.query(other, lambda left, right: left.join(right)).placement == placed.placement
    assert other.query(placed, lambda left, right: left.join(right)).placement == placed.placement


@pytest.mark.parametrize("how", ["right", "full"])
def test_right_rows_without_a_partner_may_be_where_no_left_row_of_their_key_would_be(how: str) -> None:
    with sq.local(cores=3) as cluster:
        placed = cluster.from_frame({"k": [7, 8], "x": [0, 0]}).rekey("k").redistribute()
        unkeyed = placed.union(placed.rekey("x"))
        other = cluster.from_frame({"k": [1] * 9})
        pairs = unkeyed.query(other, lambda left, right: left.join(right, on="k", how=how))
        assert pairs.placement is None
        counts = pairs.rekey("k").redistribute().query(lambda s: s.count()).collect()
        assert counts.filter(sq.col("k") == 1).rows() == [(1, 9)]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_pairs_of_rows_that_are_placed_alike_are_too(rows: sq.ShardedStream, how: str) -> None:
    placed = rows.redistribute()
    assert placed.query(placed, lambda left, right: left.join(right, how=how)).placement == placed.placement
