"""Joins hold what is alive, and the side that is ahead: long streams do not grow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.compile import Pipeline, compile_plan
from squill.engine.operator import Operator
from squill.engine.operators.interval_join import IntervalJoin
from squill.plan.rewrite import rewrite
from squill.stream import Stream
from squill.time import INFINITY

EMPTY = pl.DataFrame(schema={"t": pl.Int64, "k": pl.Int64, "x": pl.Int64})
SLACK = 4_096

QUERIES: dict[str, Callable[[Stream, Stream], Stream]] = {
    "join": lambda a, b: a.with_duration(20).join(b.with_duration(30), on="k"),
    "join of edges": lambda a, b: a.group_apply("k", lambda g: g.session_window(3)).join(b.with_duration(30), on="k"),
    "full join": lambda a, b: a.with_duration(20).join(b.with_duration(30), on="k", how="full"),
    "cross": lambda a, b: a.with_duration(2).join(b.with_duration(3), how="cross"),
    "exists": lambda a, b: a.with_duration(20).where_exists(b.with_duration(30), on="k"),
    "not exists where": lambda a, b: a.with_duration(20).where_not_exists(
        b, on="k", where=sq.col("x") > sq.col("x_right")
    ),
    "clip": lambda a, b: a.with_duration(20).clip(b, on="k"),
    "clip of endless": lambda a, b: few_keys(a).with_duration(None).clip(few_keys(b), on="k"),
    "clip of long": lambda a, b: few_keys(a).with_duration(10**9).clip(few_keys(b), on="k"),
}


def few_keys(stream: Stream) -> Stream:
    return stream.select(k=sq.col("k") % 10)


class Discard(Operator):
    def push(self, batch: Batch, port: int = 0) -> None:
        pass


def compiled(name: str) -> Pipeline:
    # Two sources of one kind: a frame is equal to itself only.
    left, right = sq.from_frame(EMPTY, start="t"), sq.from_frame(EMPTY.clone(), start="t")
    node = rewrite(QUERIES[name](left, right).plan)
    return compile_plan(node, Discard(node))


def batch_at(i: int, size: int = 1000) -> Batch:
    times = np.arange(i * size, (i + 1) * size)
    # Keys move on with time, so that old ones never come back.
    columns = {"k": pl.Series("k", times // 5), "x": pl.Series("x", times % 7)}
    return Batch(times, times + 1, columns)


def most_rows_held(name: str, batches: int) -> int:
    pipeline = compiled(name)
    most = 0
    for i in range(batches):
        for _, entry in pipeline.entries:
            entry.push(batch_at(i))
            entry.advance((i + 1) * 1000 - 1)
        most = max(most, pipeline.state_rows)
    return most


@pytest.mark.parametrize("name", QUERIES)
def test_state_does_not_grow_with_the_stream(name: str) -> None:
    assert most_rows_held(name, 60) <= 1.1 * most_rows_held(name, 30) + 100
    assert most_rows_held(name, 60) < 4 * SLACK


def test_only_the_side_that_is_ahead_waits() -> None:
    pipeline = compiled("join")
    (_, left), (_, right) = pipeline.entries
    for i in range(5):
        left.push(batch_at(i))
    assert pipeline.state_rows >= 5000
    right.advance(INFINITY)
    assert pipeline.state_rows < 5000 + SLACK


def test_rows_whose_partner_has_completed_are_not_kept() -> None:
    pipeline = compiled("join")
    (_, left), (_, right) = pipeline.entries
    right.advance(INFINITY)
    for i in range(20):
        left.push(batch_at(i))
        left.advance((i + 1) * 1000)
    (join,) = [operator for operator in pipeline.operators if isinstance(operator, IntervalJoin)]
    assert join.state_rows <= 2 * SLACK
