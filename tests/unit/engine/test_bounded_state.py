"""State is what is alive, not what has passed: long streams do not grow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.compile import compile_plan
from squill.engine.operator import Operator
from squill.stream import Stream
from tests.user_operators import Balance, Gaps


def len_of(alive: pl.DataFrame) -> dict[str, int]:
    return {"n": alive.height}


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "count": lambda s: s.sliding_window(100).group_aggregate("k", n=sq.count()),
    "sums": lambda s: s.with_duration(sq.col("x") % 90 + 1).group_aggregate("k", s=sq.sum("x"), m=sq.mean("x")),
    "extremes": lambda s: s.sliding_window(100).group_aggregate("k", a=sq.min("x"), b=sq.max("x")),
    "ordered": lambda s: s.sliding_window(100).group_aggregate("k", a=sq.first("x"), b=sq.last("x")),
    "distinct values": lambda s: s.sliding_window(100).group_aggregate("k", n=sq.count_distinct("x")),
    "nested": lambda s: s.sliding_window(100).group_aggregate("k", n=sq.count()).aggregate(n=sq.sum("n")),
    "sessions": lambda s: s.group_apply("k", lambda g: g.session_window(20, 60)),
    "count window": lambda s: s.select(k=sq.col("k") % 10).group_apply("k", lambda g: g.count_window(3)),
    "distinct": lambda s: s.sliding_window(100).distinct(),
    "stitch": lambda s: s.sliding_window(100).stitch(),
    "chop": lambda s: s.sliding_window(100).chop(30),
    "edges": lambda s: s.sliding_window(100).stitch().clip(50).extend(-20).quantize(40, 20).wait_for_ends(),
    "per window": lambda s: s.group_apply(
        "k", lambda g: g.hopping_window(100, 10).aggregate(n=sq.count())
    ).per_window(),
    "detect": lambda s: s.group_apply(
        "k", lambda g: g.detect(sq.pattern.seq(sq.col("x") < 50, sq.pattern.star(sq.pattern.any(last="x"))), within=60)
    ),
    "detect keys that never match": lambda s: s.group_apply("k", lambda g: g.detect(sq.col("x") < 0)),
    "followed by": lambda s: s.group_apply("k", lambda g: g.followed_by(sq.col("x") < 50, sq.col("x") > 50, 60)),
    "sessionize": lambda s: s.sessionize(sq.col("x") < 50, sq.col("x") > 50, on=(sq.col("k") % 10).alias("m")),
    "as of": lambda s: s.asof_join(s.shift(30).select(k=sq.col("k") % 10, y="x"), on="k"),
    "as of, edges": lambda s: s.sliding_window(9).stitch().asof_join(s.select(k=sq.col("k") % 10, y="x"), on="k"),
    "union": lambda s: s.union(s.shift(30)),
    "snapshots": lambda s: s.sliding_window(100).group_apply("k", lambda g: g.snapshot_apply(len_of, {"n": pl.Int64})),
    **{
        operator.__name__: lambda s, operator=operator: s.sliding_window(100).group_apply(  # type: ignore[misc]
            "k", lambda g: g.operator(operator, prefix="o", every=3)
        )
        for operator in (Balance, Gaps)
    },
}


class Discard(Operator):
    def push(self, batch: Batch, port: int = 0) -> None:
        pass


def rows_held_after(name: str, batches: int) -> int:
    empty = pl.DataFrame(schema={"t": pl.Int64, "k": pl.Int64, "x": pl.Int64})
    node = QUERIES[name](sq.from_frame(empty, start="t")).plan
    pipeline = compile_plan(node, Discard(node))
    random = np.random.default_rng(0)
    ((_, entry),) = pipeline.entries
    for i in range(batches):
        # Keys move on with time, so that old ones never come back.
        times = np.arange(i * 1000, (i + 1) * 1000)
        keys = times // 50 + random.integers(0, 5, 1000)
        columns = {"k": pl.Series("k", keys), "x": pl.Series("x", random.integers(0, 100, 1000))}
        entry.push(Batch(times, times + 1, columns))
        entry.advance(int(times[-1]))
    return pipeline.state_rows


@pytest.mark.parametrize("name", QUERIES)
def test_state_does_not_grow_with_the_stream(name: str) -> None:
    assert rows_held_after(name, 40) <= 1.5 * rows_held_after(name, 10) + 100
