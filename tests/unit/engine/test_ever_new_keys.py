"""A key with nothing alive keeps no state: memory does not grow with the keys that a stream has had.

Every stateful operator gets a long stream in which each key comes twice and never again. Not only the rows held
are counted but all memory below the operators (`footprint`), spare room in tables included.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.compile import Pipeline, compile_plan
from squill.engine.operator import Operator
from squill.plan.aggregates import AggregateExpr
from squill.stream import Stream
from tests.unit.engine.footprint import footprint, tables_of

SCHEMA = {"t": pl.Int64, "k": pl.String, "x": pl.Int64, "f": pl.Float64, "s": pl.String}
ROWS, BATCHES, WARM, HALF = 600, 40, 10, 24
DEAD = 512
Query = Callable[[Stream], Stream]


def largest_so_far() -> AggregateExpr:
    with pytest.warns(UserWarning, match="without deaccumulate"):
        return sq.aggregate_fn(
            "x",
            init=lambda: (0,),
            accumulate=lambda state, t, x: (max(state[0], x),),
            result=lambda state: state[0],
            dtype=pl.Int64,
        )


AGGREGATES: dict[str, Callable[[], AggregateExpr]] = {
    "count": sq.count,
    "count_not_null": lambda: sq.count_not_null("x"),
    "count where": lambda: sq.count(where=sq.col("x") > 50),
    "sum": lambda: sq.sum("x"),
    "sum of floats": lambda: sq.sum("f"),
    "mean": lambda: sq.mean("f"),
    "min": lambda: sq.min("x"),
    "max of text": lambda: sq.max("s"),
    "product": lambda: sq.product("x"),
    "var": lambda: sq.var("f"),
    "std": lambda: sq.std("x"),
    "first": lambda: sq.first("x"),
    "last": lambda: sq.last("s"),
    "last by": lambda: sq.last("x", order_by="s"),
    "top_k": lambda: sq.top_k("x", 2),
    "percentile": lambda: sq.percentile("f", 0.5),
    "count_distinct": lambda: sq.count_distinct("s"),
    "collect_list": lambda: sq.collect_list("s"),
    "user": lambda: sq.aggregate_fn(
        "x",
        init=lambda: (0,),
        accumulate=lambda state, t, x: (state[0] + x,),
        deaccumulate=lambda state, t, x: (state[0] - x,),
        result=lambda state: state[0],
        dtype=pl.Int64,
    ),
    "user, folded again": largest_so_far,
}
LIFETIMES: dict[str, Query] = {
    "equally long": lambda s: s.sliding_window(100),
    "of any length": lambda s: s.with_duration(sq.col("x") % 90 + 1),
    "edges": lambda s: s.sliding_window(50).distinct(),
    "windows": lambda s: s.hopping_window(100, 10),
}


def aggregated(aggregate: str, lifetime: str) -> Query:
    return lambda s: LIFETIMES[lifetime](s).group_aggregate("k", a=AGGREGATES[aggregate]())


def each(fn: Query) -> Query:
    return lambda s: s.group_apply("k", fn)


def edges(group: Stream) -> Stream:
    return group.sliding_window(100).distinct()


OPERATORS: dict[str, Query] = {
    "session_window": each(lambda g: g.session_window(20)),
    "session_window, cut": each(lambda g: g.session_window(20, 60)),
    "session_window, final": each(lambda g: g.session_window(20, rows="final")),
    "sessions counted": each(lambda g: g.session_window(20).count()),
    "stitch": each(lambda g: g.sliding_window(100).stitch()),
    "stitch of edges": each(lambda g: edges(g).stitch()),
    "distinct": each(lambda g: g.sliding_window(100).distinct()),
    "chop": each(lambda g: g.sliding_window(100).chop(30)),
    "chop of edges": each(lambda g: edges(g).chop(30)),
    "extend": each(lambda g: g.sliding_window(100).extend(50)),
    "extend of edges": each(lambda g: edges(g).extend(50)),
    "extend of edges, back": each(lambda g: edges(g).extend(-50)),
    "clip of edges": each(lambda g: edges(g).clip(30)),
    "clip of edges, far": each(lambda g: edges(g).clip(3000)),
    "clip of endless events": each(lambda g: g.with_duration(None).clip(30)),
    "quantize": each(lambda g: g.sliding_window(100).quantize(40, 20)),
    "quantize of edges": each(lambda g: edges(g).quantize(40, 20)),
    "per_window": each(lambda g: g.hopping_window(100, 10).count().per_window()),
    "wait_for_ends": each(lambda g: edges(g).wait_for_ends()),
    "wait_for_ends of sums": each(lambda g: g.sliding_window(100).sum("x").wait_for_ends()),
    "point_at_end": each(lambda g: edges(g).point_at_end()),
    "shift of edges": each(lambda g: edges(g).shift(30)),
    "alter_lifetime": each(lambda g: edges(g).alter_lifetime(start=sq.start() // 5 * 5, duration=20)),
    "union": each(lambda g: edges(g).union(g.sliding_window(20).stitch())),
}
QUERIES = OPERATORS | {f"{a}, {b}": aggregated(a, b) for a, b in product(AGGREGATES, LIFETIMES)}


class Discard(Operator):
    def push(self, batch: Batch, port: int = 0) -> None:
        pass

    def close_rows(self, ids: np.ndarray, ends: np.ndarray, port: int = 0) -> None:
        pass


def rows(number: int) -> Batch:
    times = np.arange(number * ROWS, (number + 1) * ROWS)
    x = np.random.default_rng(number).integers(0, 100, ROWS)
    columns = {
        "k": pl.Series("k", [f"the key number {t // 2}" for t in times.tolist()]),
        "x": pl.Series("x", x),
        "f": pl.Series("f", x / 7),
        "s": pl.Series("s", [f"text {value}" for value in x.tolist()]),
    }
    return Batch(times, times + 1, columns)


def started(query: Query) -> Pipeline:
    node = query(sq.from_frame(pl.DataFrame(schema=SCHEMA), start="t")).plan
    return compile_plan(node, Discard(node))


@pytest.fixture(autouse=True)
def few_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores be compacted early, so that a short stream shows what a long one does."""
    monkeypatch.setattr("squill.engine.row_store.SLACK", DEAD)
    monkeypatch.setattr("squill.engine.operators.stitch.SLACK", DEAD)
    monkeypatch.setattr("squill.engine.aggregation.fold_codes.SLACK", DEAD)


@pytest.mark.parametrize("name", QUERIES)
def test_memory_does_not_grow_with_the_keys_that_have_passed(name: str) -> None:
    pipeline = started(QUERIES[name])
    ((_, entry),) = pipeline.entries
    memory, held, room = [], [], []
    for number in range(BATCHES):
        batch = rows(number)
        entry.push(batch)
        entry.advance(int(batch.sync[-1]))
        memory.append(footprint(pipeline))
        held.append(pipeline.state_rows)
        room.append(sum(table.capacity for table in tables_of(pipeline)))
    for measure in (memory, held, room):
        assert max(measure[HALF:]) <= 1.2 * max(measure[WARM:HALF]) + 200
    assert max(room) <= (2 * ROWS + DEAD) * max(len(tables_of(pipeline)), 1)
    entry.advance(10 * BATCHES * ROWS)
    # Stitch lets go of empty groups when there are many.
    assert pipeline.state_rows <= (DEAD if "stitch" in name or name == "union" else 0)


def test_a_count_window_holds_its_last_events_per_key() -> None:
    pipeline = started(lambda s: s.group_apply("k", lambda g: g.count_window(1)))
    ((_, entry),) = pipeline.entries
    keys = [f"{i % 7}" for i in range(ROWS)]
    for number in range(BATCHES):
        batch = rows(number)
        entry.push(Batch(batch.sync, batch.other, {**batch.columns, "k": pl.Series("k", keys)}))
        entry.advance(int(batch.sync[-1]))
        # The last instant is held back until it is over.
        assert pipeline.state_rows <= 7 + 2


def test_a_leak_would_be_seen() -> None:
    pipeline = started(OPERATORS["distinct"])
    before = footprint(pipeline)
    leak = {number: f"key {number:06}".encode() for number in range(1000)}
    pipeline.operators[-1].leak = leak  # type: ignore[attr-defined]
    assert footprint(pipeline) - before >= 1000 * (64 + 10)
