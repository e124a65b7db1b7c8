"""The table of a join is chosen while frames are seen, and stays chosen when the plan is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.lookup_table import LookupTable
from squill.plan.fragments import fragments_of
from squill.plan.node import walk
from squill.plan.nodes import Join
from squill.plan.reading_order import LEFT, RIGHT, table_port
from squill.plan.rewrite.choose_join_table import choose_join_table
from squill.runtime.splits import plan_without_rows

LARGE, SMALL = 1_000, 10
Pair = tuple[sq.ShardedStream, sq.ShardedStream]


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as cluster:
        yield cluster


def frame(name: str, rows: int) -> pl.DataFrame:
    return pl.DataFrame({"k": [row % SMALL for row in range(rows)], name: range(rows)})


def opened(cluster: sq.Cluster) -> Pair:
    large, small = cluster.from_frame(frame("large", LARGE)), cluster.from_frame(frame("small", SMALL))
    return large.rekey("k"), small.rekey("k")


def _meet(left: sq.Stream, right: sq.Stream) -> sq.Stream:
    return left.join(right)


WAYS: dict[str, tuple[Callable[[Pair], sq.ShardedStream], int]] = {
    "small table copied": (lambda pair: pair[0].query(pair[1].broadcast(), _meet), RIGHT),
    "small table copied, from the left": (
        lambda pair: pair[1].broadcast().query(pair[0], _meet),
        LEFT,
    ),
    "both moved": (
        lambda pair: pair[1].redistribute().query(pair[0].redistribute(), _meet),
        LEFT,
    ),
    "large one copied": (lambda pair: pair[0].broadcast().query(pair[1], _meet), RIGHT),
}


def join_in(plan: sq.ShardedStream) -> Join:
    # Tasks elsewhere have the plan without rows.
    cut = plan_without_rows(fragments_of(plan.plan))
    (join,) = (node for fragment in cut.fragments for node in walk(fragment.root) if isinstance(node, Join))
    return join


@pytest.mark.parametrize("way", WAYS)
def test_smaller_relation_is_the_table_of_a_plan_that_is_cut(way: str, cluster: sq.Cluster) -> None:
    build, expected = WAYS[way]
    assert table_port(join_in(build(opened(cluster)))) == expected


@pytest.mark.parametrize("way", WAYS)
def test_only_the_smaller_relation_is_collected(way: str, cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    collected = 0
    add = LookupTable.add

    def counted(self: LookupTable, batch: Batch) -> None:
        nonlocal collected
        collected += len(batch)
        add(self, batch)

    monkeypatch.setattr(LookupTable, "add", counted)
    build, _ = WAYS[way]
    assert build(opened(cluster)).collect().height == LARGE
    assert collected <= 2 * SMALL  # once for each shard


def test_choice_is_kept_and_joins_over_time_have_none(cluster: sq.Cluster) -> None:
    relations = sq.from_frame(frame("large", LARGE)).join(sq.from_frame(frame("small", SMALL)), on="k")
    chosen = choose_join_table(relations.plan)
    assert isinstance(chosen, Join)
    assert chosen.table == "right"
    assert choose_join_table(chosen) is chosen
    events = sq.from_frame(frame("t", SMALL), start="t").join(sq.from_frame(frame("small", SMALL)), on="k")
    assert choose_join_table(events.plan) is events.plan
