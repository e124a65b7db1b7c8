from __future__ import annotations

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.open_events import OpenEvents
from squill.time import INFINITY


def edges(rows: list[tuple[int, int, int]]) -> Batch:
    sync, other, x = zip(*rows, strict=True)
    return Batch(np.array(sync), np.array(other), {"x": pl.Series("x", x)})


def test_earliest_open_follows_starts_and_ends() -> None:
    generator = np.random.default_rng(3)
    events = OpenEvents({"x": pl.Int64()})
    model: list[tuple[int, int]] = []
    for t in range(1, 400):
        begun = [(t, INFINITY, int(x)) for x in generator.integers(0, 1000, generator.integers(0, 4))]
        ended = [model.pop(int(generator.integers(len(model)))) for _ in range(generator.integers(0, 4)) if model]
        model += [(t, x) for _, _, x in begun]
        rows = [(t, start, x) for start, x in ended] + begun
        if rows:
            batch = edges(rows)
            entries = events.take(batch)
            events.free(entries[batch.other < batch.sync])
        if t % 50 == 0:
            copy = OpenEvents({"x": pl.Int64()})
            copy.load(events.save())
            events = copy
        assert events.earliest_open == min((start for start, _ in model), default=INFINITY)


def test_closed_events_are_forgotten_even_if_nobody_asks_for_the_earliest() -> None:
    events = OpenEvents({"x": pl.Int64()})
    for t in range(0, 20_000, 10):
        rows = [(t, INFINITY, x) for x in range(10)] + [(t + 1, t, x) for x in range(10)]
        batch = edges(rows)
        events.free(events.take(batch)[10:])
    assert len(events._arrivals) < 100
    assert events.earliest_open == INFINITY
