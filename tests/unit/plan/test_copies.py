"""A copied input never makes an answer depend on the number of shards: such plans are refused, the others are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.testing import assert_same_events

ROWS = {
    "left": pl.DataFrame({"t": range(40), "e": range(9, 49), "k": [row % 7 for row in range(40)], "x": range(40)}),
    "right": pl.DataFrame({"t": range(3, 33), "e": range(5, 35), "k": [row % 9 for row in range(30)], "y": range(30)}),
}
Meet = Callable[[sq.Stream, sq.Stream], sq.Stream]


def _joined(left: sq.Stream, right: sq.Stream, *, how: str) -> sq.Stream:
    return left.join(right, on="k", how=how)


MEETINGS: dict[str, tuple[Meet, str]] = {
    **{
        f"{how} join": (partial(_joined, how=how), allowed)
        for how, allowed in {"inner": "left right", "left": "right", "right": "left", "full": ""}.items()
    },
    "left asof": (lambda left, right: left.asof_join(right, on="k"), "right"),
    "inner asof": (lambda left, right: left.asof_join(right, on="k", how="inner"), "left right"),
    "exists": (lambda left, right: left.where_exists(right, on="k"), "left right"),
    "not exists": (lambda left, right: left.where_not_exists(right, on="k"), "right"),
    "clip": (lambda left, right: left.clip(right, on="k"), "right"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=3) as cluster:
        yield cluster


def plan(cluster: sq.Cluster, meet: Meet, copied: str) -> sq.ShardedStream:
    sides = {}
    for name, frame in ROWS.items():
        rows = cluster.from_frame(frame, start="t", end="e").rekey("k")
        sides[name] = rows.broadcast() if name == copied else rows.redistribute()
    return sides["left"].query(sides["right"], meet)


@pytest.mark.parametrize(("name", "copied"), list(product(MEETINGS, ("left", "right"))))
def test_copied_input_gives_the_right_answer_or_is_refused(name: str, copied: str, cluster: sq.Cluster) -> None:
    meet, allowed = MEETINGS[name]
    if copied not in allowed.split():
        with pytest.raises(PlanError, match=rf"a copy of the {copied} input of .*\nHint: redistribute both inputs"):
            plan(cluster, meet, copied)
        return
    answer = plan(cluster, meet, copied).collect()
    alone = [sq.from_frame(frame, start="t", end="e") for frame in ROWS.values()]
    assert_same_events(answer, meet(*alone).collect())


def test_hint_names_the_input_that_may_be_copied(cluster: sq.Cluster) -> None:
    left, _ = MEETINGS["left join"]
    with pytest.raises(
        PlanError, match=r"join \(how='left'\), .*\nHint: redistribute both inputs, or broadcast the right"
    ):
        plan(cluster, left, "left")
    full, _ = MEETINGS["full join"]
    with pytest.raises(PlanError, match=r"Hint: redistribute both inputs\.$"):
        plan(cluster, full, "right")


def test_inputs_that_are_copies_both_may_meet(cluster: sq.Cluster) -> None:
    left, right = (cluster.from_frame(frame, start="t", end="e").rekey("k").broadcast() for frame in ROWS.values())
    copies = left.query(right, lambda one, other: one.join(other, on="k", how="full"))
    alone = [sq.from_frame(frame, start="t", end="e") for frame in ROWS.values()]
    assert copies.collect().height == 3 * alone[0].join(alone[1], on="k", how="full").collect().height


def test_left_rows_whose_partners_are_anywhere_are_not_copied(cluster: sq.Cluster) -> None:
    left, right = (cluster.from_frame(frame, start="t", end="e") for frame in ROWS.values())
    with pytest.raises(PlanError, match="a copy of the left input of exists"):
        left.broadcast().query(right, lambda one, other: one.where_exists(other, on="k"))


def test_one_shard_copies_nothing() -> None:
    with sq.local(cores=1) as single:
        left, right = (single.from_frame(frame, start="t", end="e").rekey("k") for frame in ROWS.values())
        left.broadcast().query(right, lambda one, other: one.join(other, on="k", how="full"))


def test_shards_that_count_are_those_that_the_operator_is_on(cluster: sq.Cluster) -> None:
    left, right = (cluster.from_frame(frame, start="t", end="e").rekey("k") for frame in ROWS.values())
    on_one = left.broadcast(1).query(right.redistribute(1), MEETINGS["full join"][0])
    later = on_one.redistribute(3).query(right.redistribute(3), lambda one, other: one.select("x").join(other))
    alone = [sq.from_frame(frame, start="t", end="e") for frame in ROWS.values()]
    expected = alone[0].join(alone[1], on="k", how="full").select("k", "x").join(alone[1], on="k")
    assert_same_events(later.collect(), expected.collect())
