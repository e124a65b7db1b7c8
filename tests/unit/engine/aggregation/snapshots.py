"""Runs one aggregate over rows in each of the schedules, and says what plain Python would answer."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

import squill as sq
from squill.engine.batch import Batch
from squill.engine.operator import Operator
from squill.engine.operators.aggregate import AggregateOperator
from squill.plan.aggregates import AggregateExpr
from squill.plan.node import walk
from squill.plan.nodes import Aggregate
from squill.stream import Stream
from squill.time import INFINITY

__all__ = ["SCHEDULES", "agrees", "expected", "found", "histories", "order", "value_at_end"]

DURATION = 5
SCHEDULES = ("endless", "fifo", "general", "edges")
SCHEMA: dict[str, Any] = {"k": pl.Int64, "n": pl.Int64, "x": pl.Float64, "s": pl.String}

Row = dict[str, Any]
Answer = list[tuple[int, int, Any, Any]]
Model = Callable[[list[Row]], Any]

rows = st.fixed_dictionaries(
    {
        "start": st.integers(0, 12),
        "length": st.integers(1, 8),
        "k": st.sampled_from([0, 0, 0, 1, None]),
        "n": st.one_of(st.none(), st.integers(-4, 4)),
        "x": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.0, 0.1, math.nan, math.inf, -math.inf])),
        "s": st.one_of(st.none(), st.sampled_from(["", "a", "ab", "b"])),
    }
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Row], int]:
    """Draw a schedule, rows that fit it, and a seed for how they arrive."""
    schedule = draw(st.sampled_from(SCHEDULES))
    return schedule, draw(st.lists(rows, max_size=14)), draw(st.integers(0, 1000))


def _lifetimes(schedule: str, given: Sequence[Row]) -> list[Row]:
    def end(row: Row) -> int:
        if schedule == "endless":
            return INFINITY
        return int(row["start"] + (DURATION if schedule == "fifo" else row["length"]))

    return [{**row, "end": end(row)} for row in given]


def _stream(schedule: str, schema: dict[str, Any]) -> Stream:
    if schedule == "edges":
        return sq.from_events([], schema=schema)
    empty = pl.DataFrame(schema={"t": pl.Int64, "u": pl.Int64, **schema})
    if schedule == "general":
        return sq.from_frame(empty, start="t", end="u")
    stream = sq.from_frame(empty.drop("u"), start="t")
    return stream.with_duration(None if schedule == "endless" else DURATION)


class _Sink(Operator):
    def __init__(self, node: Aggregate) -> None:
        super().__init__(node)
        self.open: dict[tuple[int, Any], Any] = {}
        self.rows: Answer = []

    def push(self, batch: Batch, port: int = 0) -> None:
        keys, values = batch.columns["k"].to_list(), batch.columns["v"].to_list()
        for sync, other, key, value in zip(batch.sync.tolist(), batch.other.tolist(), keys, values, strict=True):
            if other < sync:
                assert same(self.open.pop((other, key)), value)
                self.rows.append((other, sync, key, value))
            else:
                assert (sync, key) not in self.open
                self.open[sync, key] = value

    def answer(self) -> Answer:
        return self.rows + [(start, INFINITY, key, value) for (start, key), value in self.open.items()]


def _edges(schedule: str, living: Sequence[Row], seed: int) -> list[tuple[int, int, Row]]:
    """Return (sync, other, row) in an order that a stream could have."""
    events = []
    for row in living:
        if schedule == "edges" and (row["start"] + row["end"]) % 3:
            events.append((row["start"], INFINITY, row))
            events.append((row["end"], row["start"], row))
        else:
            events.append((row["start"], row["end"], row))
    random.Random(seed).shuffle(events)
    return sorted(events, key=lambda event: event[0])


def _batches(events: Sequence[tuple[int, int, Row]], schema: dict[str, Any], seed: int) -> Iterator[Batch]:
    chance = random.Random(seed)
    at = 0
    while at < len(events):
        piece = events[at : at + chance.randint(1, 6)]
        at += len(piece)
        columns = {name: pl.Series(name, [row[name] for *_, row in piece], kind) for name, kind in schema.items()}
        times = np.array([event[:2] for event in piece], np.int64)
        yield Batch(times[:, 0].copy(), times[:, 1].copy(), columns)


def found(
    aggregate: AggregateExpr, schedule: str, given: Sequence[Row], seed: int = 0, schema: dict[str, Any] = SCHEMA
) -> Answer:
    """Return the operator's answer per key, saved and loaded into a fresh one at every batch boundary."""
    plan = _stream(schedule, schema).group_aggregate("k", v=aggregate).plan
    node = next(node for node in walk(plan) if isinstance(node, Aggregate))
    sink = _Sink(node)
    operator = AggregateOperator(node)
    operator.consumers = [(sink, 0)]
    for batch in _batches(_edges(schedule, _lifetimes(schedule, given), seed), schema, seed):
        operator.push(batch)
        if seed % 2:
            operator.advance(int(batch.sync[-1]))
        saved, operator = operator.save(), AggregateOperator(node)
        operator.load(saved)
        operator.consumers = [(sink, 0)]
    operator.advance(INFINITY)
    return sink.answer()


def expected(model: Model, schedule: str, given: Sequence[Row]) -> Answer:
    """Return the model's value of the rows alive, between any two neighbouring change points of a key."""
    living = _lifetimes(schedule, given)
    answer: Answer = []
    for key in {row["k"] for row in living}:
        group = [row for row in living if row["k"] == key]
        points = sorted({t for row in group for t in (row["start"], row["end"])})
        for start, end in itertools.pairwise(points):
            alive = [row for row in group if row["start"] <= start < row["end"]]
            if alive:
                answer.append((start, end, key, model(alive)))
    return answer


def order(value: Any) -> tuple[Any, ...]:
    """Nulls first, NaN last."""
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def agrees(aggregate: AggregateExpr, model: Model, history: tuple[str, list[Row], int]) -> None:
    schedule, given, seed = history
    left, right = found(aggregate, schedule, given, seed), expected(model, schedule, given)
    placed = {item[:3]: item[3] for item in left}
    assert len(placed) == len(left)
    assert placed.keys() == {item[:3] for item in right}
    for item in right:
        assert same(placed[item[:3]], item[3]), (item, placed[item[:3]])


def value_at_end(aggregate: AggregateExpr, values: Sequence[Any], dtype: Any, *, leave: int = 0) -> Any:
    """Return the aggregate of a column `x` of values after the first `leave` of them have left."""
    frame = pl.DataFrame(
        {
            "t": list(range(len(values))),
            "u": [1000 + i if i < leave else None for i in range(len(values))],
            "x": pl.Series(values, dtype=dtype, strict=False),
        },
        schema_overrides={"u": pl.Int64},
    )
    return sq.from_frame(frame, start="t", end="u").aggregate(v=aggregate).collect()["v"][-1]
