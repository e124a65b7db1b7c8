from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.exchange import scatter
from squill.exchange.routers import router_for
from squill.exchange.scatter import ScatterSink
from squill.plan.layout import Layout
from squill.plan.routing import HashRouting
from squill.time import INFINITY, MINUS_INFINITY


class Sent:
    """An outbox that remembers."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.clocks: dict[int, int] = {}

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        for receiver in receivers:
            assert self.clocks.get(receiver, MINUS_INFINITY) <= batch.sync[0], "a clock was told that does not hold"
            self.batches.append((receiver, batch.columns["k"].to_list()))
        return 0

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        for receivers, t in clocks:
            self.clocks |= dict.fromkeys(receivers, t)


def sink_and_outbox(shards: int) -> tuple[ScatterSink, Sent]:
    node = sq.from_frame({"t": [1], "k": [1]}, start="t").plan
    outbox = Sent()
    routing = HashRouting(keys=("k",), layout=Layout(shards=shards))
    return ScatterSink(node, router_for(routing, 0, node), outbox), outbox


def rows(*keys: int) -> Batch:
    times = np.array(keys)
    return Batch(times, times + 1, {"k": pl.Series("k", keys)})


def test_small_pieces_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "ENOUGH_ROWS", 4)
    sink, outbox = sink_and_outbox(1)
    for keys in ((1, 2), (3,), (4, 5), (6,)):
        sink.push(rows(*keys))
    assert outbox.batches == [(0, [1, 2, 3, 4, 5])]
    sink.advance(INFINITY)
    assert outbox.batches == [(0, [1, 2, 3, 4, 5]), (0, [6])]


def test_the_end_sends_the_rest_to_every_receiver() -> None:
    sink, outbox = sink_and_outbox(3)
    sink.push(rows(*range(10)))
    assert outbox.batches == []
    sink.advance(INFINITY)
    assert sorted(key for _, keys in outbox.batches for key in keys) == list(range(10))
    assert [receiver for receiver, _ in outbox.batches] == [0, 1, 2]
    assert set(outbox.clocks.values()) == {INFINITY}


def test_all_receivers_are_told_the_time_but_for_rows_that_are_held() -> None:
    sink, outbox = sink_and_outbox(3)
    sink.push(rows(5))
    sink.advance(9)
    (held_for,) = [receiver for receiver, clock in outbox.clocks.items() if clock == 5]
    assert {clock for receiver, clock in outbox.clocks.items() if receiver != held_for} == {9}


def test_receivers_are_told_the_time_before_rows_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "ENOUGH_ROWS", 1)
    sink, outbox = sink_and_outbox(4)
    sink.push(rows(7))
    assert sorted(outbox.clocks.values()) == [7, 7, 7, 7]
