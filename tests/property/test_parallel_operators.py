"""Each kind of node on a cluster, over rows of which many belong together; without its movement it would fail."""

from __future__ import annotations

import random
from collections.abc import Callable

import polars as pl
import pytest

import squill as sq
from squill.plan import nodes
from squill.plan.node import Node
from squill.plan.rewrite import parallelise
from squill.runtime import machine
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.small_batches import read_in_batches_of
from tests.user_operators import Numbered

SHAPES = [(3, 1), (2, 2)]
Query = Callable[[Stream, Stream], Stream]


def rows(seed: int) -> pl.DataFrame:
    """Return rows with few keys, equal rows and simultaneous ones, in no order."""
    draw = random.Random(seed)
    drawn = [(draw.randrange(40), draw.choice(["a", "b", "c", None]), draw.randrange(3)) for _ in range(60)]
    return pl.DataFrame(drawn, schema={"t": pl.Int64, "k": pl.String, "x": pl.Int64}, orient="row")


def stream(seed: int) -> Stream:
    return sq.from_frame(rows(seed), start="t").with_duration(4)


def relation(seed: int) -> Stream:
    return sq.from_frame(rows(seed).drop("t"))


def by_k(fn: Callable[[Stream], Stream]) -> Query:
    return lambda s, _: s.group_apply("k", fn)


def pairs(s: Stream) -> Stream:
    return s.consecutive_pairs()


def found(s: Stream) -> Stream:
    return s.detect(sq.pattern.seq(sq.pattern.any(n="x"), sq.pattern.any(sq.col("x") > 0)), within=9)


def total(s: Stream) -> Stream:
    return s.aggregate(n=sq.count(), s=sq.sum("x"), m=sq.mean("x"), low=sq.min("k"), high=sq.max("x"))


TEMPORAL: dict[str, tuple[type[Node], Query]] = {
    "aggregate": (nodes.Aggregate, lambda s, _: total(s)),
    "aggregate on a grid": (nodes.Aggregate, lambda s, _: total(s.hopping_window(10, 5))),
    "aggregate that is not split": (nodes.Aggregate, lambda s, _: s.hopping_window(10, 5).aggregate(v=sq.var("x"))),
    "aggregate by key": (nodes.Aggregate, by_k(total)),
    "asof join": (nodes.AsofJoin, lambda s, o: s.asof_join(o, on="k")),
    "asof join of other names": (
        nodes.AsofJoin,
        lambda s, o: s.asof_join(o.rename({"k": "l"}), left_on="k", right_on="l"),
    ),
    "asof join without a key": (nodes.AsofJoin, lambda s, o: s.asof_join(o)),
    "clip": (nodes.ClipByStream, lambda s, o: s.clip(o, on="k")),
    "clip without a key": (nodes.ClipByStream, lambda s, o: s.clip(o)),
    "consecutive pairs": (nodes.ConsecutivePairs, lambda s, _: pairs(s)),
    "consecutive pairs by key": (nodes.ConsecutivePairs, by_k(pairs)),
    "count window": (nodes.CountWindow, lambda s, _: s.count_window(3)),
    "count window by key": (nodes.CountWindow, by_k(lambda g: g.count_window(3))),
    "detect": (nodes.Detect, lambda s, _: found(s)),
    "detect by key": (nodes.Detect, by_k(found)),
    "distinct": (nodes.Distinct, lambda s, _: s.distinct()),
    "exists": (nodes.Exists, lambda s, o: s.where_exists(o, on=["k", "x"])),
    "not exists": (nodes.Exists, lambda s, o: s.where_not_exists(o, on=["k", "x"])),
    "join": (nodes.Join, lambda s, o: s.join(o, on="k")),
    "left join": (nodes.Join, lambda s, o: s.join(o, on=["k", "x"], how="left")),
    "full join of other names": (
        nodes.Join,
        lambda s, o: s.join(o.rename({"k": "l"}), left_on="k", right_on="l", how="full"),
    ),
    "key after a full join": (
        nodes.Join,
        lambda s, o: s.join(o.select(l="k", y="x"), left_on=["k", "x"], right_on=["l", "y"], how="full").group_apply(
            "k", lambda g: g.count()
        ),
    ),
    "join after a join": (nodes.Join, lambda s, o: s.join(o, on=["x", "k"]).join(o.select("k", z="x"), on="k")),
    "cross join": (nodes.Join, lambda s, o: s.join(o, how="cross")),
    "session window": (nodes.SessionWindow, lambda s, _: s.session_window(3)),
    "session window by key": (nodes.SessionWindow, by_k(lambda g: g.session_window(3))),
    "sessionize": (nodes.Sessionize, lambda s, _: s.sessionize(sq.col("x") == 0, sq.col("x") == 1)),
    "sessionize by key": (nodes.Sessionize, lambda s, _: s.sessionize(sq.col("x") == 0, sq.col("x") == 1, on="k")),
    "snapshot apply": (
        nodes.SnapshotApply,
        lambda s, _: s.snapshot_apply(lambda alive: {"most": alive["x"].max()}, {"most": pl.Int64}),
    ),
    "snapshot apply by key": (
        nodes.SnapshotApply,
        by_k(lambda g: g.snapshot_apply(lambda alive: {"rows": len(alive)}, {"rows": pl.Int64})),
    ),
    "stitch": (nodes.Stitch, lambda s, _: s.chop(2).stitch()),
    "operator": (nodes.UserOperator, lambda s, _: s.operator(Numbered, prefix="n", every=2)),
    "operator by key": (nodes.UserOperator, by_k(lambda g: g.operator(Numbered, prefix="n", every=2))),
}
RELATIONAL: dict[str, tuple[type[Node], Query]] = {
    "aggregate": (nodes.Aggregate, lambda s, _: total(s)),
    "aggregate by key": (nodes.Aggregate, by_k(total)),
    "aggregate that is not split": (nodes.Aggregate, by_k(lambda g: g.aggregate(v=sq.var("x"), d=sq.first("x")))),
    "distinct": (nodes.Distinct, lambda s, _: s.distinct()),
    "exists": (nodes.Exists, lambda s, o: s.where_not_exists(o.where(sq.col("x") > 1), on="k")),
    "join": (nodes.Join, lambda s, o: s.join(o, on="k")),
    "right join": (nodes.Join, lambda s, o: s.join(o.where(sq.col("x") > 1), on=["k", "x"], how="right")),
    "cross join": (nodes.Join, lambda s, o: s.join(o, how="cross")),
    "snapshot apply": (
        nodes.SnapshotApply,
        by_k(lambda g: g.snapshot_apply(lambda alive: {"rows": len(alive)}, {"rows": pl.Int64})),
    ),
}
CASES = {
    **{f"{name} over time": (stream, *case) for name, case in TEMPORAL.items()},
    **{f"{name} of relations": (relation, *case) for name, case in RELATIONAL.items()},
}
Source = Callable[[int], Stream]


@pytest.fixture(autouse=True)
def _tiny_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_batches_of(monkeypatch, 7, sent=5)
    monkeypatch.setattr(machine, "MAILBOX_ROWS", 8)
    monkeypatch.setattr(machine, "LEAST_ROWS", 4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("source", "kind", "query"), CASES.values(), ids=CASES)
def test_answer_is_that_of_this_process(shape: tuple[int, int], source: Source, kind: type[Node], query: Query) -> None:
    asked = query(source(1), source(2))
    cores, machines = shape
    with sq.local(cores=cores, machines=machines) as cluster:
        assert_same_events(asked.collect(on=cluster), asked.collect(), scale=1e3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("source", "kind", "query"), CASES.values(), ids=CASES)
def test_answer_would_be_another_without_the_movement(
    monkeypatch: pytest.MonkeyPatch, source: Source, kind: type[Node], query: Query
) -> None:
    asked = query(source(1), source(2))
    monkeypatch.setitem(parallelise.RULES, kind, lambda _rule, node: node)
    with sq.local(cores=3) as cluster, pytest.raises(AssertionError):
        assert_same_events(asked.collect(on=cluster), asked.collect(), scale=1e3)
