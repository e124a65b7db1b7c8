from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.fragments import Fragment, fragments_of
from squill.plan.layout import Layout
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource
from squill.plan.nodes.movement import Move, ShardInput, Split
from squill.plan.routing import HashRouting


@pytest.fixture
def clicks() -> Iterator[sq.ShardedStream]:
    with sq.local(cores=3) as cluster:
        yield cluster.from_frame({"t": [1, 2], "user": [5, 6], "ad": ["a", "b"]}, start="t", shards=2)


def cut(plan: Node) -> tuple[Fragment, ...]:
    return fragments_of(plan).fragments


def test_plan_without_movement_is_one_fragment(clicks: sq.ShardedStream) -> None:
    (only,) = cut(clicks.query(lambda s: s.where(sq.col("user") > 5)).plan)
    assert (only.number, only.layout.shards, only.inputs, only.outputs) == (1, 2, (None,), ())
    assert any(isinstance(node, FrameSource) for node in walk(only.root))


def test_movement_separates_two_fragments(clicks: sq.ShardedStream) -> None:
    first, second = cut(clicks.rekey("ad").redistribute(3).query(lambda g: g.count()).plan)
    (channel,) = first.outputs
    assert channel.routing == HashRouting(keys=("ad",), layout=Layout(shards=3, cores=3))
    assert (first.number, first.layout.shards, channel.sender) == (1, 2, 1)
    assert (second.number, second.layout.shards, second.inputs) == (2, 3, (channel.number,))
    movements = [node for part in (first, second) for node in walk(part.root) if isinstance(node, (Split, Move))]
    assert movements == []


def test_fragment_receives_what_the_one_before_gives(clicks: sq.ShardedStream) -> None:
    first, second = cut(clicks.rekey("ad").redistribute(3).query(lambda g: g.count()).plan)
    (source,) = [node for node in walk(second.root) if isinstance(node, ShardInput)]
    assert source.schema == first.root.schema
    assert source.time == first.root.time
    assert source.properties == first.root.properties


def test_rows_move_with_the_columns_that_later_fragments_use(clicks: sq.ShardedStream) -> None:
    counted = clicks.rekey("ad").redistribute(3).query(lambda g: g.count())
    first, _ = cut(counted.plan)
    assert first.root.schema.names == ("ad",)
    assert counted.collect(sort=True).rows() == [(1, 2, "a", 1), (2, 3, "b", 1)]


def test_a_sharded_scan_reads_what_later_fragments_use(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    pl.DataFrame({"t": [1, 2, 3], "ad": ["a", "b", "a"], "x": [1, 2, 3], "wide": ["…"] * 3}).write_parquet(path)
    with sq.local(cores=2) as cluster:
        some = cluster.scan(path, start="t").query(lambda s: s.where(sq.col("x") > 1))
        summed = some.rekey("ad").redistribute(3).query(lambda g: g.sum("x"))
        first, _ = cut(summed.plan)
        assert isinstance(first.root, FileSource)
        assert first.root.read == ("ad", "x")
        assert first.root.predicate is not None
        assert summed.collect(sort=True).rows() == [(2, 3, "b", 2), (3, 4, "a", 3)]


def test_stream_used_twice_is_one_input(clicks: sq.ShardedStream) -> None:
    both = clicks.rekey("ad").redistribute(3).query(lambda g: g.where(sq.col("user") > 5).union(g))
    _, second = cut(both.plan)
    assert len([node for node in walk(second.root) if isinstance(node, ShardInput)]) == 1


def test_movement_to_where_the_rows_are_is_dropped(clicks: sq.ShardedStream) -> None:
    again = clicks.rekey("ad").redistribute(3).query(lambda g: g.where(sq.col("user") > 5)).redistribute(3)
    assert len(cut(again.plan)) == 2
    assert len(cut(again.redistribute(to=5).plan)) == 3


def test_explain_shows_fragments_and_movements(clicks: sq.ShardedStream) -> None:
    text = clicks.rekey("ad").redistribute(3).query(lambda g: g.count()).explain()
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    assert lines[0] == "fragment 1 on 2 shards"
    assert lines[2] == "  -> channel 1: redistribute by ad to 3 shards, ~2 rows, ~34 B"
    assert lines[3] == "fragment 2 on 3 shards"
    assert lines[-1] == "  -> the answer, ~2 rows, ~50 B"


def test_stream_sent_two_ways_is_computed_once(clicks: sq.ShardedStream) -> None:
    counted = clicks.rekey("ad").query(lambda g: g.count())
    both = counted.redistribute(2).query(counted.broadcast(2), lambda left, right: left.join(right))
    first, second = cut(both.plan)
    assert [channel.routing.verb for channel in first.outputs] == ["redistribute", "broadcast"]
    assert second.inputs == (1, 2)


def test_movement_read_by_two_fragments_is_one_channel(clicks: sq.ShardedStream) -> None:
    placed = clicks.rekey("ad").redistribute(2)
    counted = placed.query(lambda g: g.count()).broadcast(2)
    first, second, third = cut(placed.query(counted, lambda left, right: left.join(right)).plan)
    assert [len(part.outputs) for part in (first, second, third)] == [1, 1, 0]
    assert (second.inputs, third.inputs) == ((1,), (1, 2))


def test_movement_by_more_columns_is_dropped_where_nobody_looks_for_a_key(clicks: sq.ShardedStream) -> None:
    placed = clicks.rekey("ad").redistribute(2)
    finer = placed.rekey("ad", "user").redistribute()
    assert len(cut(finer.query(lambda g: g.count()).plan)) == 2
    other = clicks.rekey("ad", "user").redistribute()
    assert len(cut(finer.query(other, lambda left, right: left.join(right)).plan)) == 3


def test_movement_of_every_shard_to_itself_is_dropped() -> None:
    with sq.local(cores=2) as cluster:
        one = cluster.from_frame({"t": [1], "k": [1]}, start="t", shards=1).rekey("k")
        assert len(cut(one.redistribute().plan)) == 1
        assert len(cut(one.broadcast().reshard().plan)) == 1
        assert len(cut(one.multicast(sq.col("k")).plan)) == 2, "a multicast may drop rows"
        assert len(cut(one.redistribute(2).redistribute(scope="global").plan)) == 2
