from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.fragments import fragments_of
from squill.plan.node import walk
from squill.plan.nodes import FileSource, FrameSource
from squill.plan.nodes.movement import Redistribute, ShardInput, Split
from squill.plan.placement import Placement


@pytest.fixture
def clicks() -> Iterator[sq.ShardedStream]:
    with sq.local(cores=3) as cluster:
        yield cluster.from_frame({"t": [1, 2], "user": [5, 6], "ad": ["a", "b"]}, start="t", shards=2)


def test_plan_without_movement_is_one_fragment(clicks: sq.ShardedStream) -> None:
    (only,) = fragments_of(clicks.query(lambda s: s.where(sq.col("user") > 5)).plan)
    assert (only.number, only.shards, only.sender, only.delivers) == (1, 2, None, None)
    assert any(isinstance(node, FrameSource) for node in walk(only.root))


def test_movement_separates_two_fragments(clicks: sq.ShardedStream) -> None:
    first, second = fragments_of(clicks.rekey("ad").redistribute().query(lambda g: g.count()).plan)
    placed = Placement(keys=("ad",), shards=3)
    assert (first.number, first.shards, first.delivers) == (1, 2, placed)
    assert (second.number, second.shards, second.sender, second.received) == (2, 3, 1, placed)
    movements = [
        node for part in (first, second) for node in walk(part.root) if isinstance(node, (Split, Redistribute))
    ]
    assert movements == []


def test_fragment_receives_what_the_one_before_gives(clicks: sq.ShardedStream) -> None:
    first, second = fragments_of(clicks.rekey("ad").redistribute().query(lambda g: g.count()).plan)
    (source,) = [node for node in walk(second.root) if isinstance(node, ShardInput)]
    assert source.schema == first.root.schema
    assert source.time == first.root.time
    assert source.properties == first.root.properties


def test_rows_move_with_the_columns_that_later_fragments_use(clicks: sq.ShardedStream) -> None:
    counted = clicks.rekey("ad").redistribute().query(lambda g: g.count())
    first, _ = fragments_of(counted.plan)
    assert first.root.schema.names == ("ad",)
    assert counted.collect(sort=True).rows() == [(1, 2, "a", 1), (2, 3, "b", 1)]


def test_a_sharded_scan_reads_what_later_fragments_use(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    pl.DataFrame({"t": [1, 2, 3], "ad": ["a", "b", "a"], "x": [1, 2, 3], "wide": ["…"] * 3}).write_parquet(path)
    with sq.local(cores=2) as cluster:
        some = cluster.scan(path, start="t").query(lambda s: s.where(sq.col("x") > 1))
        summed = some.rekey("ad").redistribute().query(lambda g: g.sum("x"))
        first, _ = fragments_of(summed.plan)
        assert isinstance(first.root, FileSource)
        assert first.root.read == ("ad", "x")
        assert first.root.predicate is not None
        assert summed.collect(sort=True).rows() == [(2, 3, "b", 2), (3, 4, "a", 3)]


def test_stream_used_twice_is_one_input(clicks: sq.ShardedStream) -> None:
    both = clicks.rekey("ad").redistribute().query(lambda g: g.where(sq.col("user") > 5).union(g))
    _, second = fragments_of(both.plan)
    assert len([node for node in walk(second.root) if isinstance(node, ShardInput)]) == 1


def test_movement_to_where_the_rows_are_is_dropped(clicks: sq.ShardedStream) -> None:
    again = clicks.rekey("ad").redistribute().query(lambda g: g.where(sq.col("user") > 5)).redistribute()
    assert len(fragments_of(again.plan)) == 2
    assert len(fragments_of(again.redistribute(to=5).plan)) == 3


def test_explain_shows_fragments_and_movements(clicks: sq.ShardedStream) -> None:
    text = clicks.rekey("ad").redistribute().query(lambda g: g.count()).explain()
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    assert lines[0] == "fragment 1 on 2 shards: each reads its split"
    assert lines[2] == "  -> redistribute by hash(ad) v1 % 3"
    assert lines[3] == "fragment 2 on 3 shards: each receives rows of fragment 1 placed by hash(ad) v1 % 3"
    assert lines[-1] == "  -> collect"
