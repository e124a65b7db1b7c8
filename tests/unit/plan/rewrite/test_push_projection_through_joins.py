"""Joins get, keep and show no columns that nobody uses."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.division import division_of
from squill.plan.fragments import fragments_of
from squill.plan.node import walk
from squill.plan.nodes import AsofJoin, Exists, FileSource, Join, TwoInputs
from squill.plan.rewrite import rewrite
from squill.stream import Stream

FRAME = pl.DataFrame({"t": [1, 2, 3], "k": [1, 2, 1], "x": [0.5, 1.5, 2.5], "y": [1, 2, 3]})


@pytest.fixture
def clicks(tmp_path: Path) -> Stream:
    FRAME.write_parquet(tmp_path / "clicks.parquet")
    return sq.scan(tmp_path / "clicks.parquet", start="t").with_duration(9)


@pytest.fixture
def views(tmp_path: Path) -> Stream:
    FRAME.rename({"y": "z"}).write_parquet(tmp_path / "views.parquet")
    return sq.scan(tmp_path / "views.parquet", start="t").with_duration(9)


def read_by(query: Stream) -> list[tuple[str, ...] | None]:
    return [node.read for node in walk(rewrite(query.plan)) if isinstance(node, FileSource)]


def pairing(query: Stream) -> TwoInputs:
    (found,) = [node for node in walk(rewrite(query.plan)) if isinstance(node, TwoInputs)]
    return found


def test_a_join_reads_its_keys_and_what_is_used_of_its_pairs(clicks: Stream, views: Stream) -> None:
    query = clicks.join(views, on="k").select("y", "x_right")
    assert read_by(query) == [("k", "y"), ("k", "x")]
    assert list(pairing(query).schema) == ["k", "y", "x_right"]
    assert query.collect()["x_right"].sum() == 7.5


def test_keys_of_the_right_input_that_nobody_uses_are_not_shown(clicks: Stream, views: Stream) -> None:
    query = clicks.join(views, left_on="k", right_on="z").select("x")
    assert read_by(query) == [("k", "x"), ("z",)]
    assert list(pairing(query).schema) == ["k", "x"]


def test_what_the_condition_looks_at_is_read(clicks: Stream, views: Stream) -> None:
    query = clicks.join(views, on="k", where=sq.col("x") < sq.col("x_right")).select("k")
    assert read_by(query) == [("k", "x"), ("k", "x")]
    exists = clicks.where_exists(views, on="k", where=sq.col("z") > 2).select("y")
    assert isinstance(pairing(exists), Exists)
    assert read_by(exists) == [("k", "y"), ("k", "z")]
    assert exists.collect()["y"].to_list() == [1, 3]


def test_where_only_rows_count_one_column_is_read(clicks: Stream, views: Stream) -> None:
    query = clicks.join(views, how="cross").aggregate(n=sq.count())
    assert read_by(query) == [("k",), ("k",)]
    assert query.collect()["n"].max() == 9


def test_an_input_that_cannot_read_less_is_cut_down_above() -> None:
    frame = sq.from_frame(FRAME, start="t").with_duration(9)
    join = pairing(frame.join(frame.rename({"y": "z"}), on="k").select("z"))
    assert isinstance(join, Join)
    assert (list(join.left.schema), list(join.right.schema)) == (["k"], ["k", "z"])


def test_a_join_of_which_all_is_used_is_the_same_object() -> None:
    frame = sq.from_frame(FRAME, start="t").with_duration(9)
    plan = frame.join(frame.rename({"y": "z"}), on="k").plan
    assert rewrite(plan) is plan


def test_all_sides_of_outer_joins_use_the_same_columns(clicks: Stream, views: Stream) -> None:
    query = clicks.join(views, on="k", how="full").select("z")
    assert read_by(query) == [("k",), ("k", "z")]
    whole = clicks.join(views, on="k", how="full").collect(sort=True)
    assert sorted(query.collect()["z"]) == sorted(whole["z"])


def test_an_as_of_join_reads_all_that_may_decide(clicks: Stream, views: Stream) -> None:
    query = clicks.asof_join(views, on="k").select("z")
    assert isinstance(pairing(query), AsofJoin)
    assert read_by(query) == [None, None]


def test_columns_that_place_rows_stay_so_that_shards_can_be_divided() -> None:
    with sq.local(cores=1, machines=2) as cluster:
        refs = cluster.from_frame({"k": [1, 2], "w": [10, 20]}).rekey("k").broadcast()
        placed = cluster.from_frame(FRAME, start="t").rekey("y").redistribute().rekey("k")
        query = placed.query(refs, lambda left, right: left.join(right)).redistribute()
        plan = fragments_of(query.query(lambda s: s.aggregate(total=sq.sum("w"))).plan)
    (join,) = [node for fragment in plan.fragments for node in walk(fragment.root) if isinstance(node, Join)]
    assert list(join.left.schema) == ["k", "y"]
    for fragment in plan.fragments:
        division_of(fragment, plan.channels, "closed")
