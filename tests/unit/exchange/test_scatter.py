from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.exchange import scatter
from squill.exchange.scatter import ScatterSink
from squill.plan.placement import Placement


class Sent:
    """An outbox that remembers."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []

    def send(self, receiver: int, batch: Batch) -> None:
        self.batches.append((receiver, batch.columns["k"].to_list()))


def sink_and_outbox(shards: int) -> tuple[ScatterSink, Sent]:
    node = sq.from_frame({"t": [1], "k": [1]}, start="t").plan
    outbox = Sent()
    return ScatterSink(node, Placement(keys=("k",), shards=shards), outbox), outbox


def rows(*keys: int) -> Batch:
    times = np.arange(len(keys))
    return Batch(times, times + 1, {"k": pl.Series("k", keys)})


def test_small_pieces_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "ENOUGH_ROWS", 4)
    sink, outbox = sink_and_outbox(1)
    for keys in ((1, 2), (3,), (4, 5), (6,)):
        sink.push(rows(*keys))
    assert outbox.batches == [(0, [1, 2, 3, 4, 5])]
    sink.finish()
    assert outbox.batches == [(0, [1, 2, 3, 4, 5]), (0, [6])]


def test_finish_sends_the_rest_to_every_receiver() -> None:
    sink, outbox = sink_and_outbox(3)
    sink.push(rows(*range(10)))
    assert outbox.batches == []
    sink.finish()
    assert sorted(key for _, keys in outbox.batches for key in keys) == list(range(10))
    assert [receiver for receiver, _ in outbox.batches] == [0, 1, 2]
