from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import polars as pl
import pytest

import squill as sq
from squill.errors import NumericOverflowError, PlanError
from squill.testing import assert_same_events, reference

BIG = 2**62


@pytest.fixture(scope="module")
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as made:
        yield made


def test_run_gives_what_collect_gives(cluster: sq.Cluster) -> None:
    clicks = sq.from_frame({"t": [1, 2, 7], "ad": ["a", "b", "a"]}, start="t")
    query = clicks.group_apply("ad", lambda g: g.sliding_window(10).count())
    expected = query.collect(sort=True)
    assert cluster.run(query, sort=True).equals(expected)
    assert query.collect(sort=True, on=cluster).equals(expected)


def test_rows_with_maps_are_told_apart(cluster: sq.Cluster) -> None:
    maps = pl.Series([{"a": 1}, {"a": 1}, {"a": 2}, None], dtype=pl.Map(pl.String, pl.Int64))
    rows = sq.from_frame(pl.DataFrame({"t": [1, 2, 3, 4], "m": maps}), start="t", lifetime="open")
    for query in (rows.distinct(), rows.stitch(), rows.aggregate(n=sq.count_distinct("m"), l=sq.collect_list("m"))):
        assert_same_events(query.collect(on=cluster), reference.run(query))
        assert_same_events(query.collect(), reference.run(query))


def test_explain_shows_fragments_and_movements(cluster: sq.Cluster) -> None:
    clicks = sq.from_frame({"t": [1, 2], "ad": ["a", "b"], "x": [1, 2]}, start="t", name="clicks")
    assert clicks.group_apply("ad", lambda g: g.sliding_window(10).count()).explain(on=cluster) == (
        """\
fragment 1 on 2 shards
  select(columns=[ad])  -> ad: String  [Int64; ends known, duration 10]
    with_duration(duration=10)  -> ad: String, x: Int64  [Int64; ends known, duration 10]
      frame_source(clicks, start=t, 2 columns)  -> ad: String, x: Int64  [Int64; ends known, duration 1]  \
~2 rows, ~34 B
  -> channel 1: redistribute by ad to 2 shards, ~2 rows, ~34 B
fragment 2 on 2 shards
  aggregate(keys=[ad], count=count())  -> ad: String, count: Int64  [Int64; edges]
    shard_input(rows of fragment 1, 1 columns)  -> ad: String  [Int64; ends known, duration 10]
  -> the answer, ~2 rows, ~50 B"""
    )


def test_explain_shows_both_halves_of_an_aggregate(cluster: sq.Cluster) -> None:
    ads = sq.from_frame({"ad": ["a"], "cents": [5]}, name="ads")
    query = ads.group_aggregate("ad", n=sq.count(), spent=sq.sum("cents", where=sq.col("cents") > 0))
    assert query.explain(on=cluster) == (
        """\
fragment 1 on 2 shards
  aggregate(keys=[ad], count()=count(), sum(cents, where=[(col("cents")) > (dyn int: 0)])=sum(cents, wide=True, \
where=[(col("cents")) > (dyn int: 0)]))  -> ad: String, count(): Int64, \
sum(cents, where=[(col("cents")) > (dyn int: 0)]): Decimal(precision=38, scale=0)  [relational]
    frame_source(ads, 2 columns)  -> ad: String, cents: Int64  [relational]  ~1 row, ~9 B
  -> channel 1: redistribute by ad to 2 shards, ~1 row, ~41 B
fragment 2 on 2 shards
  aggregate(keys=[ad], n=sum(count()), \
spent=sum(sum(cents, where=[(col("cents")) > (dyn int: 0)]), narrow=True))  \
-> ad: String, n: Int64, spent: Int64  [relational]
    shard_input(rows of fragment 1, 3 columns)  -> ad: String, count(): Int64, \
sum(cents, where=[(col("cents")) > (dyn int: 0)]): Decimal(precision=38, scale=0)  [relational]
  -> the answer, ~1 row, ~33 B"""
    )


# The first half of the rows is one shard's, the second half the other's.
SHARDS_OVERFLOW = [BIG, BIG, -BIG, -BIG]
ALL_OVERFLOW = [BIG, 0, BIG, 0]


def asked(values: list[int], kind: str, dtype: pl.DataType) -> sq.Stream:
    frame = pl.DataFrame({"t": [3] * len(values), "k": [1] * len(values), "x": pl.Series(values).cast(dtype)})
    match kind:
        case "relation":
            return sq.from_frame(frame.drop("t")).aggregate(x=sq.sum("x"))
        case "keyed relation":
            return sq.from_frame(frame.drop("t")).group_aggregate("k", x=sq.sum("x")).select("x")
        case "unlowered relation":
            named = {"x": sq.sum("x"), "least": sq.min(sq.col("k").cast(pl.String))}
            return sq.from_frame(frame.drop("t")).aggregate(**named).select("x")
        case _:
            return sq.from_frame(frame, start="t").tumbling_window(5).aggregate(x=sq.sum("x"))


KINDS = ["relation", "keyed relation", "unlowered relation", "window"]
TYPES = [pl.Int64(), pl.Duration("ms")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sums_overflow_as_all_rows_do(cluster: sq.Cluster, kind: str, dtype: pl.DataType) -> None:
    query = asked(SHARDS_OVERFLOW, kind, dtype)
    assert "wide=True" in query.explain(on=cluster)
    found = query.collect(on=cluster)["x"]
    assert found.dtype == dtype
    assert found.to_physical().to_list() == [0]
    overflowing = asked(ALL_OVERFLOW, kind, dtype)
    with pytest.raises(NumericOverflowError, match="the sum leaves the 64-bit range"):
        overflowing.collect()
    with pytest.raises(NumericOverflowError, match="the sum leaves the 64-bit range"):
        overflowing.collect(on=cluster)


@pytest.mark.parametrize("kind", KINDS)
def test_long_unsigned_numbers_are_summed_exactly(cluster: sq.Cluster, kind: str) -> None:
    query = asked([2**63 - 5, 1, 1, 1], kind, pl.UInt64())
    assert query.collect(on=cluster)["x"].to_list() == query.collect()["x"].to_list() == [2**63 - 2]


def test_mean_of_long_numbers_is_that_of_all(cluster: sq.Cluster) -> None:
    numbers = sq.from_frame({"x": [BIG, BIG, BIG, -BIG, None, 2]}).aggregate(
        m=sq.mean("x"), n=sq.mean("x", where=sq.col("x") == 0)
    )
    assert numbers.collect(on=cluster).rows() == numbers.collect().rows() == [((2 * BIG + 2) / 5, None)]


def test_no_rows_give_no_answer(cluster: sq.Cluster) -> None:
    empty = sq.from_frame(pl.DataFrame(schema={"k": pl.Int64, "x": pl.Int64}))
    assert empty.aggregate(n=sq.count(), x=sq.sum("x")).collect(on=cluster).rows() == []
    assert empty.group_aggregate("k", n=sq.count()).collect(on=cluster).schema == {"k": pl.Int64, "n": pl.Int64}


def test_what_is_no_cluster_is_refused() -> None:
    stream = sq.from_frame({"t": [1]}, start="t")
    with pytest.raises(PlanError, match="collect: on=4 is not a cluster"):
        stream.collect(on=cast(Any, 4))
    with pytest.raises(PlanError, match="explain: on='local' is not a cluster"):
        stream.explain(on=cast(Any, "local"))


def test_what_is_no_stream_is_refused(cluster: sq.Cluster) -> None:
    with pytest.raises(PlanError, match="run: a DataFrame is not a Stream"):
        cluster.run(cast(Any, pl.DataFrame()))


def test_stream_inside_a_group_is_refused(cluster: sq.Cluster) -> None:
    stream = sq.from_frame({"t": [1], "k": [1]}, start="t")
    with pytest.raises(PlanError, match="a stream inside group_apply cannot be run by itself"):
        stream.group_apply("k", lambda g: cast(Any, g.collect(on=cluster)))


def test_batch_rows_goes_with_this_process(cluster: sq.Cluster) -> None:
    with pytest.raises(PlanError, match="collect: batch_rows goes with a run in this process"):
        sq.from_frame({"t": [1]}, start="t").collect(on=cluster, batch_rows=5)


def test_pushed_source_is_refused(cluster: sq.Cluster) -> None:
    with pytest.raises(PlanError, match="is pushed by the program: a cluster runs queries over stored inputs"):
        sq.source({"t": pl.Int64}, start="t").collect(on=cluster)
