from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine import egress
from squill.engine.batch import Batch
from squill.engine.egress import CollectSink
from squill.errors import InputError
from squill.exchange.flow import Halted
from squill.exchange.scatter import ENOUGH_ROWS, Outbox
from squill.plan.fragments import fragments_of
from squill.plan.node import Node
from squill.runtime.answer import DRIVER, CollectAnswer, Part, Receipt
from squill.time import INFINITY
from tests.unit.exchange.test_scatter import Sent


class CountedPart:
    """Reports how many rows there were, and none of them."""

    def __init__(self, root: Node, shard: int) -> None:
        self.sink = CollectSink(root)
        self._shard = shard

    def finish(self) -> Receipt:
        return Receipt(shard=self._shard, note=len(self.sink.rows()))


class CountAnswer:
    keeps_shards = False

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.left_by: list[type[BaseException]] = []

    @contextmanager
    def open(self, root: Node, shard: int, attempt: int, outbox: Outbox | None) -> Iterator[Part]:
        self.opened.append(shard)
        try:
            yield CountedPart(root, shard)
        except BaseException as error:
            self.left_by.append(type(error))
            raise


def test_runtime_returns_the_receipts_of_all_shards_in_order() -> None:
    answer = CountAnswer()
    with sq.local(cores=2) as cluster:
        source = cluster.from_frame({"t": list(range(10))}, start="t", shards=4)
        receipts = cluster.runtime.run(fragments_of(source.plan), answer)
    assert receipts == [Receipt(shard=shard, note=rows) for shard, rows in enumerate([2, 3, 2, 3])]
    assert sorted(answer.opened) == [0, 1, 2, 3]


def test_only_the_last_fragment_opens_parts() -> None:
    answer = CountAnswer()
    with sq.local(cores=2) as cluster:
        source = cluster.from_frame({"t": [1, 2], "k": [1, 2]}, start="t", shards=5).rekey("k").redistribute(3)
        cluster.runtime.run(fragments_of(source.plan), answer)
    assert sorted(answer.opened) == [0, 1, 2]


def test_part_of_a_failing_shard_is_left_by_its_error() -> None:
    answer = CountAnswer()
    with sq.local(cores=1) as cluster:
        source = cluster.from_frame({"t": [1, None]}, start="t", shards=1)
        with pytest.raises(InputError):
            cluster.runtime.run(fragments_of(source.plan), answer)
    assert answer.left_by == [InputError]


def test_receipts_are_told_as_shards_finish() -> None:
    told: list[Receipt] = []
    with sq.local(cores=2) as cluster:
        source = cluster.from_frame({"t": [1, 2, 3]}, start="t", shards=3)
        receipts = cluster.runtime.run(fragments_of(source.plan), CollectAnswer(), on_receipt=told.append)
    assert sorted(receipt.shard for receipt in told) == [receipt.shard for receipt in receipts] == [0, 1, 2]


def test_set_stop_ends_the_work() -> None:
    stop = threading.Event()
    stop.set()
    with sq.local(cores=2) as cluster:
        source = cluster.from_frame({"t": [1, 2, 3]}, start="t", shards=3)
        with pytest.raises(Halted):
            cluster.runtime.run(fragments_of(source.plan), CollectAnswer(), stop=stop)


def rows_at(first: int, number: int) -> Batch:
    times = np.arange(first, first + number)
    return Batch(times, times + 1, {"k": pl.Series("k", times)})


def test_rows_leave_a_part_as_they_come_where_there_is_an_outbox() -> None:
    outbox, root = Sent(), sq.from_frame({"t": [1], "k": [1]}, start="t").plan
    with CollectAnswer().open(root, 3, 0, outbox) as part:
        part.sink.push(rows_at(0, ENOUGH_ROWS))
        assert outbox.batches == [(DRIVER, list(range(ENOUGH_ROWS)))]
        part.sink.push(rows_at(ENOUGH_ROWS, 5))
        part.sink.advance(INFINITY)
        assert outbox.batches[1:] == [(DRIVER, list(range(ENOUGH_ROWS, ENOUGH_ROWS + 5)))]
        assert part.finish() == Receipt(shard=3)


def numbered_rows(first: int, number: int) -> Batch:
    times = np.arange(first, first + number)
    return Batch(times, INFINITY, {"k": pl.Series("k", times)}, range(first, first + number))


def test_rows_whose_ends_follow_leave_when_no_row_before_them_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "MANY_ROWS", 10)
    outbox, root = Sent(), sq.from_frame({"t": [1], "k": [1]}, start="t").aggregate(n=sq.count()).plan
    assert not root.properties.ends_known
    with CollectAnswer().open(root, 0, 0, outbox) as part:
        part.sink.push(numbered_rows(0, 10))
        part.sink.close_rows(np.arange(1, 10), np.full(9, 20))
        part.sink.push(numbered_rows(10, 10))
        assert outbox.batches == []
        part.sink.close_rows(np.array([0, 11]), np.array([21, 22]))
        part.sink.push(numbered_rows(20, 10))
        assert outbox.batches == [(DRIVER, list(range(10)))]
        part.sink.advance(INFINITY)
        (first, second) = part.finish().pieces
    assert first.sync.tolist() == list(range(10, 20))
    assert first.other.tolist() == [INFINITY, 22, *[INFINITY] * 8]
    assert second.sync.tolist() == list(range(20, 30))


def test_without_an_outbox_rows_go_with_the_receipt() -> None:
    root = sq.from_frame({"t": [1], "k": [1]}, start="t").plan
    with CollectAnswer().open(root, 0, 0, None) as part:
        part.sink.push(rows_at(0, ENOUGH_ROWS))
        assert sum(map(len, part.finish().pieces)) == ENOUGH_ROWS
