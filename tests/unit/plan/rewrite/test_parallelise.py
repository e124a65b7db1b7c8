from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError
from squill.plan.layout import Layout
from squill.plan.node import Node, UnaryNode, walk
from squill.plan.nodes.movement import Move, Split
from squill.plan.rewrite.parallelise import RULES, parallelise
from squill.stream import Stream
from tests.user_operators import Numbered

MANY, ONE = Layout(shards=4, cores=2), Layout(shards=1)

clicks = sq.from_frame({"t": [1], "ad": ["a"], "user": [1], "x": [0.5], "tags": [["new"]]}, start="t", name="clicks")
ads = sq.from_frame({"ad": ["a"], "owner": [7]}, name="ads")
prices = sq.from_frame({"t": [1, 2], "name": ["a", "b"], "price": [7, 8]}, start="t", name="prices")
events = sq.from_events([sq.point(1, ad="a", owner=3)])


def moves(stream: Stream) -> list[str]:
    """Return the movements of the plan, in the order in which rows pass them."""
    plan = parallelise(stream.plan, MANY, ONE)
    return [str(node.routing) for node in walk(plan) if isinstance(node, Move)]


BY_AD, GATHER = "redistribute by ad to 2 machines of 2 shards", "redistribute to 1 shard"
BY_NAME = "redistribute by name to 2 machines of 2 shards"
BY_AD_AND_USER = "redistribute by ad, user to 2 machines of 2 shards"
COPY = "broadcast to 2 machines of 2 shards"
TO_FIRST = "redistribute to 2 machines of 2 shards"


def by_ad(fn: Callable[[Stream], Stream]) -> Stream:
    return clicks.group_apply("ad", fn)


PLANS: dict[str, tuple[Stream, list[str]]] = {
    "each row by itself": (clicks.where(sq.col("x") > 0).sliding_window(5).chop(2), []),
    "the rows of a key": (by_ad(lambda g: g.count_window(2)), [BY_AD]),
    "all rows": (clicks.count_window(2), [GATHER]),
    "an operator of a key": (by_ad(lambda g: g.operator(Numbered, prefix="n", every=2)), [BY_AD]),
    "a keyed aggregate over time": (by_ad(lambda g: g.hopping_window(9, 3).count()), [BY_AD]),
    "all rows in a window": (clicks.hopping_window(9, 3).count(), [GATHER]),
    "a key again": (by_ad(lambda g: g.session_window(5)).group_apply("ad", lambda g: g.count()), [BY_AD]),
    "more keys than rows are placed by": (
        by_ad(lambda g: g.session_window(5)).group_apply(["user", "ad"], lambda g: g.count()),
        [BY_AD],
    ),
    "fewer keys than rows are placed by": (
        clicks.group_apply(["ad", "user"], lambda g: g.session_window(5)).group_apply("ad", lambda g: g.count()),
        [BY_AD_AND_USER, BY_AD],
    ),
    "a key that was computed anew": (
        by_ad(lambda g: g.session_window(5)).with_columns(ad=sq.col("ad") + "!").group_apply("ad", Stream.count),
        [BY_AD, BY_AD],
    ),
    "equal rows": (clicks.select("ad", "user").distinct(), [BY_AD_AND_USER]),
    "equal rows of a list": (clicks.select("tags").stitch(), [GATHER]),
    "equal rows of a relation": (ads.select("ad").distinct(), [BY_AD]),
    "both sides of a join": (clicks.join(ads, on="ad"), [BY_AD, BY_AD]),
    "sides of other names": (clicks.asof_join(prices, left_on="ad", right_on="name"), [BY_AD, BY_NAME]),
    "the right side follows": (
        by_ad(lambda g: g.session_window(5)).join(prices, left_on=["user", "ad"], right_on=["price", "name"]),
        [BY_AD, BY_NAME],
    ),
    "the left side follows": (
        prices.asof_join(by_ad(lambda g: g.session_window(5)), left_on=["price", "name"], right_on=["user", "ad"]),
        [BY_NAME, BY_AD],
    ),
    "a stream that meets itself": (clicks.share(lambda s: s.join(s.select("ad", n="user"), on="ad")), [BY_AD, BY_AD]),
    "a stream that meets itself as it is": (by_ad(lambda g: g.join(g.where(sq.col("x") > 0))), [BY_AD, BY_AD]),
    "a small side is copied": (clicks.join(ads, how="cross"), [COPY]),
    "the smaller side is copied": (ads.join(prices, how="cross"), [COPY]),
    "no key, the right side is copied": (clicks.asof_join(prices), [COPY]),
    "no key, one side on one shard": (clicks.clip(prices.tumbling_window(5).count()), [GATHER, COPY]),
    "no key, left side on one shard": (prices.tumbling_window(5).count().asof_join(clicks), [GATHER, GATHER]),
    "events are read by one shard": (events.where(sq.col("owner") > 1), []),
    "events are spread by the first key": (events.group_apply("ad", lambda g: g.count_window(1)), [BY_AD]),
    "a summary stays on its shard": (
        clicks.tumbling_window(5).count().group_apply("count", lambda g: g.count_window(1)),
        [GATHER],
    ),
    "united with what one shard has": (clicks.select("ad", owner="user").union(events), [TO_FIRST]),
    "united where they are": (clicks.select("ad").union(prices.select(ad="name")), []),
    "a keyed sum over a relation": (ads.group_aggregate("ad", n=sq.sum("owner")), [BY_AD]),
}


@pytest.mark.parametrize(("stream", "expected"), PLANS.values(), ids=PLANS)
def test_rows_move_where_they_must_and_no_further(stream: Stream, expected: list[str]) -> None:
    assert moves(stream) == expected


def test_every_source_is_split() -> None:
    plan = parallelise(clicks.select("ad", owner="user").union(events).plan, MANY, ONE)
    splits = [(node.parent.name, str(node.layout)) for node in walk(plan) if isinstance(node, Split)]
    assert splits == [("frame_source", "2 machines of 2 shards"), ("events_source", "1 shard")]


def test_one_shard_moves_nothing() -> None:
    for stream, _ in PLANS.values():
        plan = parallelise(stream.plan, ONE, ONE)
        assert not any(isinstance(node, Move) for node in walk(plan))


@dataclass(frozen=True, kw_only=True)
class Unheard(UnaryNode):
    """A kind of node of which the table says nothing."""


def test_unknown_node_gets_all_rows_on_one_shard() -> None:
    plan = parallelise(Unheard(parent=clicks.plan), MANY, ONE)
    assert [str(node.routing) for node in walk(plan) if isinstance(node, Move)] == [GATHER]


def test_every_node_has_a_rule() -> None:
    from squill.plan import nodes

    kinds = [getattr(nodes, name) for name in nodes.__all__]
    listed = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Node)]
    assert [kind.__name__ for kind in listed if kind not in RULES and not kind.__subclasses__()] == []


def test_unmatched_rows_of_a_full_join_are_not_taken_to_be_placed() -> None:
    """Their left key is null and says nothing of where they are."""
    joined = clicks.join(prices, left_on="ad", right_on="name", how="full")
    assert moves(joined.group_apply("ad", lambda g: g.count())) == [BY_AD, BY_NAME, BY_AD]
    shared = clicks.join(prices.rename({"name": "ad"}), on="ad", how="full")
    assert moves(shared.group_apply("ad", lambda g: g.count())) == [BY_AD, BY_AD]


def test_pushed_source_is_refused() -> None:
    pushed = sq.source({"t": pl.Int64}, start="t", name="live")
    with pytest.raises(PlanError, match="source 'live' is pushed by the program: a cluster runs queries over stored"):
        parallelise(pushed.count().plan, MANY, ONE)


def test_column_that_cannot_cross_shards_is_refused_where_it_would() -> None:
    frame = pl.DataFrame({"t": [1], "k": [1], "thing": pl.Series([object()], dtype=pl.Object)})
    stream = sq.from_frame(frame, start="t")
    assert moves(stream.where(sq.col("k") > 0)) == []
    with pytest.raises(PlanError, match="the column 'thing' is Object, which cannot cross shards"):
        moves(stream.join(sq.from_frame({"k": [1]}), on="k"))
