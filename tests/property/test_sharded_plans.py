"""Sharded plans, random in their movements, give what the query gives in-process."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.exchange import routers
from squill.runtime import splits
from squill.testing import assert_same_events
from tests.small_batches import tiny_batches

Frame = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from("abcd"), st.integers(-5, 5)), min_size=0, max_size=40
).map(lambda rows: pl.DataFrame(rows, schema={"t": pl.Int64(), "k": pl.String(), "x": pl.Int64()}, orient="row"))

NIGHT = dt.datetime(2024, 10, 26, 23, 30, tzinfo=dt.UTC)
"""In which summer time ends."""
KEYS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "text": (pl.String(), ["", "é", "a\0b", "x" * 40]),
    "floats": (pl.Float64(), [0.0, -0.0, math.nan, -math.inf]),
    "bytes": (pl.Binary(), [b"", b"\0", b"\xff", b"a"]),
    "times": (pl.Datetime("ns", "Europe/Zurich"), [NIGHT + dt.timedelta(hours=hour) for hour in range(4)]),
    "decimals": (pl.Decimal(38, 2), [Decimal(10**20), Decimal("-0.01"), Decimal(0), Decimal(1)]),
    "names": (pl.Enum(["z", "a", ""]), ["", "a", "z", "a"]),
    "truth": (pl.Boolean(), [True, False, True, True]),
}  # fmt: skip
kinds = st.sampled_from(sorted(KEYS))


def with_keys(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Return the rows with keys of another type in the place of the letters a to d."""
    dtype, values = KEYS[kind]
    keys = [values["abcd".index(letter)] for letter in frame["k"]]
    return frame.with_columns(pl.Series("k", keys, dtype))


LAYOUTS = [(1, 1), (1, 3), (2, 2), (3, 1)]
Sharded = sq.ShardedStream


def summed(group: sq.Stream) -> sq.Stream:
    return group.aggregate(n=sq.sum("n"), total=sq.sum("total"))


def counted(group: sq.Stream) -> sq.Stream:
    return group.with_duration(7).aggregate(n=sq.count(), total=sq.sum("x"))


def chosen(shards: int, row: dict[str, int]) -> int:
    return row["x"] % shards


# Movements that leave every row on exactly one shard, in any order; then the key is brought together.
MOVES: dict[str, Callable[[Sharded], Sharded]] = {
    "redistribute": lambda s: s.redistribute(),
    "redistribute local": lambda s: s.redistribute(scope="local"),
    "redistribute global": lambda s: s.redistribute(scope="global"),
    "reshard": lambda s: s.reshard(),
    "reshard local": lambda s: s.reshard(scope="local"),
    "by another key": lambda s: s.rekey("x").redistribute().rekey("k"),
    "multicast to one": lambda s: s.multicast(partial(chosen, s.layout.shards)),
    "pass": lambda s: s.query(lambda g: g.where(sq.col("x") < 9)),
}
BY_VALUES = ("by another key", "multicast to one", "pass")
"""Moves that look at the column x."""
moves = st.lists(st.sampled_from(sorted(MOVES)), max_size=4)


@pytest.fixture(autouse=True)
def _tiny_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that every queue fills up, every mailbox blocks and every instant is cut."""
    monkeypatch.setattr(splits, "BLOCK_ROWS", 2)
    tiny_batches(monkeypatch)
    monkeypatch.setattr(routers, "BLOCK_ROWS", 2)


def moved(stream: Sharded, names: list[str]) -> Sharded:
    for name in names:
        stream = MOVES[name](stream)
    return stream


def without_x(names: list[str]) -> list[str]:
    return [name for name in names if name not in BY_VALUES]


def aggregate_of(cluster: sq.Cluster, frame: pl.DataFrame, first: list[str], second: list[str], early: bool) -> Sharded:
    rows = moved(cluster.from_frame(frame, start="t").rekey("k"), first)
    if early:  # partial counts per shard, moved about as edges, summed where each key is together
        return moved(rows.query(counted), without_x(second)).redistribute().query(summed)
    return moved(rows, second).redistribute().query(counted)


@settings(max_examples=60, deadline=None)
@given(Frame, kinds, st.sampled_from(LAYOUTS), moves, moves, st.booleans())
def test_grouped_aggregates(
    frame: pl.DataFrame, kind: str, size: tuple[int, int], first: list[str], second: list[str], early: bool
) -> None:
    frame = with_keys(frame, kind)
    expected = sq.from_frame(frame, start="t").group_apply("k", counted).collect()
    with sq.local(cores=size[1], machines=size[0]) as cluster:
        assert_same_events(aggregate_of(cluster, frame, first, second, early).collect(), expected)


JOINS: dict[str, Callable[[Sharded, Sharded], Sharded]] = {
    "both redistributed": lambda one, other: one.redistribute().query(other.redistribute(), join),
    "one moved like the other": lambda one, other: one.redistribute().query(other, join),
    "right broadcast": lambda one, other: one.query(other.broadcast(), join),
    "left broadcast": lambda one, other: one.broadcast().query(other, join),
    "a copy per machine": lambda one, other: one.redistribute(scope="local").query(
        other.broadcast(scope="global").redistribute(scope="local"), join
    ),
}


def join(left: sq.Stream, right: sq.Stream) -> sq.Stream:
    return left.with_duration(4).join(right.with_duration(9))


def join_of(
    cluster: sq.Cluster, one: pl.DataFrame, other: pl.DataFrame, how: str, first: list[str], second: list[str]
) -> Sharded:
    """Join rows with others, whose column is y."""
    a = moved(cluster.from_frame(one, start="t").rekey("k"), first)
    b = moved(cluster.from_frame(other, start="t").rekey("k"), without_x(second))
    if how == "one moved like the other" and b.placement is not None:
        b = b.reshard()
    return JOINS[how](a, b)


@settings(max_examples=60, deadline=None)
@given(Frame, Frame, kinds, st.sampled_from(LAYOUTS), st.sampled_from(sorted(JOINS)), moves, moves)
def test_joins(
    one: pl.DataFrame,
    other: pl.DataFrame,
    kind: str,
    size: tuple[int, int],
    how: str,
    first: list[str],
    second: list[str],
) -> None:
    one, other = with_keys(one, kind), with_keys(other, kind).rename({"x": "y"})
    left, right = sq.from_frame(one, start="t"), sq.from_frame(other, start="t")
    expected = left.with_duration(4).join(right.with_duration(9), on="k").collect()
    with sq.local(cores=size[1], machines=size[0]) as cluster:
        assert_same_events(join_of(cluster, one, other, how, first, second).collect(), expected)


@settings(max_examples=40, deadline=None)
@given(Frame, st.sampled_from(LAYOUTS))
def test_a_stream_that_meets_itself_on_ways_of_different_delay(frame: pl.DataFrame, size: tuple[int, int]) -> None:
    """One way holds back what it counts until windows end; the other one is full long before."""

    def query(rows: sq.Stream) -> sq.Stream:
        return rows.group_apply("k", lambda g: g.join(g.hopping_window(20, 10).count()))

    expected = query(sq.from_frame(frame, start="t")).collect()
    with sq.local(cores=size[1], machines=size[0]) as cluster:
        rows = cluster.from_frame(frame, start="t").rekey("k")
        counts = rows.redistribute().query(lambda g: g.hopping_window(20, 10).count()).reshard()
        plan = rows.redistribute().query(counts.redistribute(), lambda left, right: left.join(right))
        assert_same_events(plan.collect(), expected)


few, many = sq.col("x") < 0, sq.col("x") >= -3
FILTERED: dict[str, Callable[[sq.Stream], sq.Stream]] = {
    "one filter": lambda g: counted(g.where(few)),
    "filters in a row": lambda g: counted(g.where(many).select("k", "x").where(few)),
    "behind a computed column": lambda g: counted(g.with_columns(y=sq.col("x") * 2).where(few)),
    "two readers": lambda g: g.where(few).with_duration(5).join(g.where(~many).select("k")),
    "readers that overlap": lambda g: counted(g.where(few).union(g.where(many))),
    "a reader of all": lambda g: counted(g.where(few).union(g)),
    "times": lambda g: counted(g.where(sq.start() > 9).union(g.where(few & (sq.end() < 20)))),
}
with_nulls = Frame.map(lambda frame: frame.with_columns(x=pl.when(pl.col("x") != 0).then("x")))


@settings(max_examples=60, deadline=None)
@given(with_nulls, kinds, st.sampled_from(LAYOUTS), moves, st.sampled_from(sorted(FILTERED)))
def test_filters_of_queries_behind_movements(
    frame: pl.DataFrame, kind: str, size: tuple[int, int], first: list[str], how: str
) -> None:
    frame = with_keys(frame, kind)
    expected = sq.from_frame(frame, start="t").group_apply("k", FILTERED[how]).collect()
    names = [name for name in first if name not in BY_VALUES]  # which send rows without an x nowhere
    with sq.local(cores=size[1], machines=size[0]) as cluster:
        rows = moved(cluster.from_frame(frame, start="t").rekey("k"), names)
        assert_same_events(rows.redistribute().query(FILTERED[how]).collect(), expected)
