"""The answer of a sharded plan piece by piece, as shards finish."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import polars as pl

from squill.engine.codecs import decoded
from squill.engine.egress import result_frame
from squill.plan.fragments import ShardedPlan
from squill.runtime.answer import CollectAnswer, Receipt
from squill.runtime.runtime import Runtime

__all__ = ["batches"]


def batches(runtime: Runtime, plan: ShardedPlan) -> Iterator[pl.DataFrame]:
    """Yield a frame for each shard that has rows, ordered by start within, as soon as the runtime has it.

    The plan runs while the caller is busy with a frame. Whoever stops asking stops the run.
    """
    arrived: SimpleQueue[Receipt | BaseException | None] = SimpleQueue()
    stop = threading.Event()

    def work() -> None:
        try:
            runtime.run(plan, CollectAnswer(), on_receipt=arrived.put, stop=stop)
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001  (raised again where somebody waits for frames)
            arrived.put(error)

    runner = threading.Thread(target=work, name="batches", daemon=True)
    runner.start()
    node = plan.answer.root
    try:
        while (item := arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            if item.pieces:
                yield decoded(result_frame(item.rows(node), node), node.codecs)
    finally:
        stop.set()
        runner.join()
