from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.node import walk
from squill.plan.nodes.movement import Move
from squill.plan.rewrite.leave_out_movements import leave_out_movements
from squill.testing import assert_same_events

CLICKS = pl.DataFrame({"k": [n % 4 for n in range(60)], "x": [n % 7 for n in range(60)], "y": list(range(60))})


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2, machines=2) as started:
        yield started


@pytest.fixture
def clicks(cluster: sq.Cluster) -> sq.ShardedStream:
    return cluster.from_frame(CLICKS)


def by_k(stream: sq.ShardedStream) -> sq.ShardedStream:
    return stream.rekey("k").redistribute()


def by_both(stream: sq.ShardedStream) -> sq.ShardedStream:
    return stream.rekey("k", "x").redistribute()


def some(stream: sq.ShardedStream) -> sq.ShardedStream:
    return stream.query(lambda group: group.where(sq.col("y") >= 0))


def movements_left(stream: sq.ShardedStream) -> list[str]:
    return [node.routing.verb for node in walk(leave_out_movements(stream.plan)) if isinstance(node, Move)]


def test_a_plan_whose_movements_are_needed_stays_the_same_object(clicks: sq.ShardedStream) -> None:
    plan = by_both(some(clicks.reshard())).plan
    assert leave_out_movements(plan) is plan


def test_a_movement_is_left_out_where_rows_live_by_all_or_some_of_its_columns(clicks: sq.ShardedStream) -> None:
    assert movements_left(by_both(some(by_both(clicks)))) == ["redistribute"]
    assert movements_left(by_both(by_both(some(by_k(clicks))))) == ["redistribute"]
    assert len(movements_left(by_k(some(by_both(clicks))))) == 2


# What is last before the operator of two inputs moves nothing if all before it has moved: one of them has to.
CHAINS: dict[str, Callable[[sq.ShardedStream], sq.ShardedStream]] = {
    "twice": lambda s: by_both(some(by_both(by_k(s)))),
    "three times": lambda s: by_both(some(by_both(some(by_both(by_k(s)))))),
    "then inside a machine": lambda s: some(by_both(by_k(s))).redistribute(scope="local"),
    "then between machines": lambda s: some(by_both(by_k(s))).redistribute(scope="global"),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_rows_of_two_inputs_meet_though_one_was_placed_by_fewer_columns(
    clicks: sq.ShardedStream, chain: Callable[[sq.ShardedStream], sq.ShardedStream]
) -> None:
    left, right = chain(clicks), by_both(clicks.query(lambda s: s.rename({"y": "z"})))
    rows = sq.from_frame(CLICKS)
    joined = rows.join(rows.rename({"y": "z"}), on=["k", "x"])
    assert_same_events(left.query(right, lambda a, b: a.join(b)).collect(), joined.collect())
    united = left.union(by_both(clicks)).query(lambda group: group.count())
    assert_same_events(united.collect(), rows.union(rows).group_aggregate(["k", "x"], count=sq.count()).collect())


def test_a_dataset_says_where_its_rows_are_though_a_movement_was_left_out(
    cluster: sq.Cluster, clicks: sq.ShardedStream, tmp_path: Path
) -> None:
    kept = by_both(by_k(clicks)).to_storage(tmp_path / "kept")
    assert kept.placed_by == ("k",)
    assert kept.keys == ("k", "x")
    right = by_both(clicks.query(lambda s: s.rename({"y": "z"})))
    joined = by_both(cluster.scan(tmp_path / "kept")).query(right, lambda a, b: a.join(b))
    rows = sq.from_frame(CLICKS)
    assert_same_events(joined.collect(), rows.join(rows.rename({"y": "z"}), on=["k", "x"]).collect())
