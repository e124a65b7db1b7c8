"""Rows that the readers of a movement drop are not sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.fragments import fragments_of
from squill.plan.node import walk
from squill.plan.nodes import FileSource, Where
from squill.plan.rewrite import rewrite
from squill.testing import assert_same_events

CLICKS = pl.DataFrame({"t": range(60), "k": [n % 4 for n in range(60)], "x": [n % 7 or None for n in range(60)]})
Query = Callable[[sq.Stream], sq.Stream]


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2, machines=2) as started:
        yield started


@pytest.fixture
def clicks(cluster: sq.Cluster, tmp_path: Path) -> sq.ShardedStream:
    CLICKS.write_parquet(tmp_path / "clicks.parquet")
    return cluster.scan(tmp_path / "clicks.parquet", start="t").rekey("k")


def read_with(stream: sq.ShardedStream) -> str | None:
    """Return what the one scan of the plan leaves out."""
    nodes = [node for fragment in fragments_of(stream.plan).fragments for node in walk(fragment.root)]
    (scan,) = [node for node in nodes if isinstance(node, FileSource)]
    return None if scan.predicate is None else scan.predicate.text


def sent(stream: sq.ShardedStream) -> list[list[str]]:
    """Return the columns of each channel."""
    return [list(channel.schema) for channel in fragments_of(stream.plan).channels.values()]


def assert_answers(stream: sq.ShardedStream, query: Query) -> None:
    expected = sq.from_frame(CLICKS, start="t").group_apply("k", query).collect()
    assert expected.height
    assert_same_events(stream.collect(), expected)


def count(group: sq.Stream) -> sq.Stream:
    return group.with_duration(5).aggregate(n=sq.count())


def test_a_filter_behind_a_movement_is_that_of_the_scan_and_its_column_stays(clicks: sq.ShardedStream) -> None:
    def query(group: sq.Stream) -> sq.Stream:
        return count(group.where(sq.col("x") > 3))

    plan = clicks.redistribute().query(query)
    assert read_with(plan) is not None
    assert sent(plan) == [["k"]]
    assert_answers(plan, query)


def test_columns_that_are_handed_on_let_a_filter_through(clicks: sq.ShardedStream) -> None:
    def query(group: sq.Stream) -> sq.Stream:
        return count(group.with_columns(y=sq.col("x") * 2).where(sq.col("x") > 3))

    plan = clicks.redistribute().query(query)
    assert read_with(plan) is not None
    assert_answers(plan, query)


def test_what_two_filters_drop_is_not_sent(clicks: sq.ShardedStream) -> None:
    def query(group: sq.Stream) -> sq.Stream:
        return group.where(sq.col("x") < 2).with_duration(30).select("k").join(group.where(sq.col("x") > 5))

    plan = clicks.redistribute().query(query)
    assert read_with(plan) == '[([(col("x")) < (dyn int: 2)]) | ([(col("x")) > (dyn int: 5)])]'
    assert_answers(plan, query)


def test_somebody_who_reads_all_gets_all(clicks: sq.ShardedStream) -> None:
    def query(group: sq.Stream) -> sq.Stream:
        return count(group.where(sq.col("x") < 2).union(group))

    plan = clicks.redistribute().query(query)
    assert read_with(plan) is None
    assert_answers(plan, query)


def test_rows_that_are_copied_are_filtered_before(clicks: sq.ShardedStream) -> None:
    plan = clicks.broadcast().query(lambda group: group.where(sq.col("x") > 3))
    assert read_with(plan) is not None
    assert plan.collect().height == 4 * CLICKS.filter(pl.col("x") > 3).height


@pytest.mark.parametrize("move", [lambda s: s.reshard(), lambda s: s.multicast(sq.col("k"))], ids=["reshard", "ask"])
def test_what_places_rows_by_more_than_themselves_gets_all_rows(
    clicks: sq.ShardedStream, move: Callable[[sq.ShardedStream], sq.ShardedStream]
) -> None:
    assert read_with(move(clicks).query(lambda group: group.where(sq.col("x") > 3))) is None


def test_a_column_that_may_fail_keeps_the_filter_behind_it(clicks: sq.ShardedStream) -> None:
    def query(group: sq.Stream) -> sq.Stream:
        return count(group.with_columns(y=sq.col("x").cast(pl.Int8)).where(sq.col("x") > 3))

    plan = clicks.redistribute().query(query)
    assert read_with(plan) is None
    assert_answers(plan, query)


def test_a_plan_in_which_nothing_moves_up_is_the_same_object(clicks: sq.ShardedStream) -> None:
    plan = clicks.reshard().query(lambda group: group.where(sq.col("x") > 3)).plan
    filters = [node for node in walk(rewrite(plan)) if isinstance(node, Where)]
    assert [node for node in walk(plan) if isinstance(node, Where)] == filters
