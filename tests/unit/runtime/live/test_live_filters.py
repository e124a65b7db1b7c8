"""A filter drops rows, not the time that they bring."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import squill as sq
from squill.errors import LateEventError
from squill.sharded import ShardedStream
from squill.testing import LiveTest, scripted

Query = Callable[[ShardedStream], ShardedStream]
SCHEMA = {"t": pl.Int64, "k": pl.Int64}


def filtered_before(clicks: ShardedStream) -> ShardedStream:
    return counted(clicks.query(lambda s: s.where(sq.col("k") > 0)).rekey("k").redistribute())


def filtered_behind(clicks: ShardedStream) -> ShardedStream:
    return counted(clicks.rekey("k").redistribute().query(lambda s: s.where(sq.col("k") > 0)))


def counted(clicks: ShardedStream) -> ShardedStream:
    return clicks.query(lambda s: s.tumbling_window(10).count())


both_ways = pytest.mark.parametrize("query", [filtered_before, filtered_behind])


@both_ways
def test_windows_close_when_rows_come_that_the_filter_drops(query: Query) -> None:
    with LiveTest(query, {"clicks": scripted(SCHEMA, start="t")}, shards=2) as test:
        test.push("clicks", {"t": [1, 2], "k": [1, 1]})
        assert test.step().height == 0
        test.push("clicks", {"t": [35], "k": [0]})
        assert test.step().rows() == [(10, 20, 1, 2)]


@both_ways
def test_a_row_is_late_whatever_the_filter_says_of_it_and_of_those_before(query: Query) -> None:
    inputs = {"clicks": scripted(SCHEMA, start="t", disorder=sq.drop())}
    with LiveTest(query, inputs, shards=2) as test:
        test.push("clicks", {"t": [1, 35], "k": [1, 0]})
        test.step()
        test.push("clicks", {"t": [34, 33], "k": [1, 0]})
        test.step()
        assert test.late["start"].sort().to_list() == [33, 34]
    with LiveTest(query, {"clicks": scripted(SCHEMA, start="t")}, shards=2) as test:
        test.push("clicks", {"t": [35], "k": [1]})
        test.step()
        test.push("clicks", {"t": [3], "k": [0]})
        with pytest.raises(LateEventError, match="before the current time"):
            test.step()
