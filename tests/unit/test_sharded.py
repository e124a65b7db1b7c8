from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import polars as pl
import pytest

import squill as sq
from squill.errors import ColumnNotFoundError, PlanError


@pytest.fixture
def clicks() -> Iterator[sq.ShardedStream]:
    with sq.local(cores=2) as cluster:
        yield cluster.from_frame({"t": [1, 2], "user": [5, 6], "ad": ["a", "b"]}, start="t")


def test_repr_shows_columns_time_and_key(clicks: sq.ShardedStream) -> None:
    assert repr(clicks.rekey("ad")) == "ShardedStream(user: Int64, ad: String; time Int64; keyed by ad)"


def test_key_columns_come_first(clicks: sq.ShardedStream) -> None:
    assert clicks.rekey("ad").query(lambda g: g.select("user")).schema.names == ("ad", "user")


def test_key_lasts_until_the_next_one(clicks: sq.ShardedStream) -> None:
    keyed = clicks.rekey("ad").redistribute().query(lambda g: g.with_duration(5))
    assert keyed.keys == ("ad",)
    assert keyed.rekey("user", "ad").keys == ("user", "ad")


Wrong = Callable[[sq.ShardedStream], Any]
REFUSED: dict[str, tuple[Wrong, str]] = {
    "no key": (lambda s: s.redistribute(), "redistribute: the stream has no key"),
    "no shards": (lambda s: s.rekey("ad").redistribute(0), "redistribute: 0 is not a number of shards"),
    "no columns": (lambda s: s.rekey(), "rekey: no key is given"),
    "more shards than threads": (lambda s: s.rekey("ad").redistribute(10**6), "local: 1,000,000 shards, each of which"),
    "a function of two streams": (
        lambda s: s.query(cast("Any", lambda a, b: a.join(b))),
        "query: the function cannot be called with 1 stream: missing a required argument: 'b'",
    ),
    "a function of one stream": (
        lambda s: s.query(s, cast("Any", lambda a: a)),
        "query: the function cannot be called with 2 streams: too many positional arguments",
    ),
    "a key of maps": (
        lambda s: s.rekey(m=pl.lit(None, pl.Map(pl.String, pl.Int64))),
        r"rekey: the key 'm' is Map\(String, Int64\)\nHint: keys may be integers",
    ),
    "another sharded stream inside": (
        lambda s: s.query(lambda a: a.union(cast(Any, s))),
        r"union: a ShardedStream is not a Stream\nHint: give it to query: query\(other, lambda l, r: …\).",
    ),
    "not a function": (lambda s: s.query(cast(Any, 3)), r"query: it takes a function, .*; found \(3,\)"),
    "wrong scope": (lambda s: s.reshard(scope="here"), "reshard: scope is 'here'"),
    "wrong channel": (lambda s: s.reshard(channel="pigeon"), "reshard: channel is 'pigeon'"),
    "scope and other shards": (lambda s: s.reshard(5, scope="local"), "rows on 2 shards cannot move to 5 shards"),
    "different shards": (lambda s: s.query(s.reshard(3), lambda a, b: a.union(b)), "live on 2 shards and on 3 shards"),
    "different keys": (
        lambda s: s.rekey("ad").query(s.rekey("user"), lambda a, b: a.join(b)),
        "the inputs have different keys: ad and user",
    ),
    "no placement": (
        lambda s: s.rekey("ad").query(s.rekey("ad").reshard(), lambda a, b: a.join(b)),
        "rows of equal ad may live on different shards",
    ),
    "not shard numbers": (lambda s: s.multicast(sq.col("ad")), "is String, not shard numbers"),
    "union with nothing sharded": (lambda s: s.union(cast(Any, 3)), "union: 3 is not a sharded stream"),
    "not a stream": (lambda s: s.query(lambda _: cast(Any, 3)), "query: the function returned an int, not a Stream"),
    "another stream": (
        lambda s: s.query(lambda g: sq.from_frame({"t": [1]}, start="t")),
        "query: the function returned a stream that is not made from its argument",
    ),
    "key changed": (
        lambda s: s.rekey("ad").query(lambda g: g.with_columns(ad=sq.col("user"))),
        "with_columns: 'ad' is a key of this group",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_plan_is_refused_while_it_is_built(clicks: sq.ShardedStream, wrong: Wrong, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        wrong(clicks)


def test_missing_key_column_lists_near_names(clicks: sq.ShardedStream) -> None:
    with pytest.raises(ColumnNotFoundError, match=r"rekey: there is no column 'usr'.*\nHint: did you mean 'user'"):
        clicks.rekey("usr")


def test_stream_cannot_be_run_inside_a_query(clicks: sq.ShardedStream) -> None:
    with pytest.raises(PlanError, match="cannot be run by itself"):
        clicks.query(lambda s: s.collect())  # type: ignore[arg-type, return-value]


def test_column_that_cannot_travel_is_refused() -> None:
    frame = pl.DataFrame({"t": [1], "k": [1], "any": pl.Series([object()], dtype=pl.Object)})
    with sq.local(cores=1) as cluster, pytest.raises(PlanError, match="the column 'any' is Object"):
        cluster.from_frame(frame, start="t").rekey("k").redistribute()


def test_wrong_number_of_splits_is_refused() -> None:
    with sq.local(cores=1) as cluster, pytest.raises(PlanError, match="from_frame: 0 is not a number of shards"):
        cluster.from_frame({"t": [1]}, start="t", shards=0)
