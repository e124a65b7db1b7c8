from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import squill as sq
from squill.plan.placement import Placement

PLACED = Placement(keys=("a", "b"), shards=4)


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
