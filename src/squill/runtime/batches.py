"""The answer of a sharded plan piece by piece, as shards finish."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Full, Queue

import polars as pl

from squill.engine.codecs import decoded
from squill.engine.egress import result_frame
from squill.exchange.flow import Halted
from squill.plan.fragments import ShardedPlan
from squill.runtime.answer import CollectAnswer, Receipt
from squill.runtime.runtime import Runtime
from squill.runtime.ticket import RunTicket

__all__ = ["batches"]

FRAMES_AHEAD = 2
"""So many frames wait for the caller; then shards that are done wait for it, so that they are not all in memory."""
LOOK_SECONDS = 0.1


def batches(runtime: Runtime, plan: ShardedPlan, ticket: RunTicket | None = None) -> Iterator[pl.DataFrame]:
    """Yield a frame for each shard that has rows, ordered by start within, as soon as the runtime has it.

    The plan runs while the caller is busy with a frame. Whoever stops asking stops the run.
    """
    arrived: Queue[Receipt | BaseException | None] = Queue(FRAMES_AHEAD)
    stop, left = threading.Event(), threading.Event()

    def put(item: Receipt | BaseException | None, in_vain: threading.Event) -> None:
        while not in_vain.is_set():
            try:
                return arrived.put(item, timeout=LOOK_SECONDS)
            except Full:
                continue
        raise Halted

    def on_receipt(receipt: Receipt) -> None:
        if receipt.pieces:
            put(receipt, stop)

    def work() -> None:
        end: BaseException | None = None
        try:
            runtime.run(plan, CollectAnswer(), on_receipt=on_receipt, stop=stop, ticket=ticket)
        except BaseException as error:  # noqa: BLE001  (raised again where somebody waits for frames)
            end = error
        with suppress(Halted):
            put(end, left)  # a failed run has set `stop` by itself

    runner = threading.Thread(target=work, name="batches", daemon=True)
    runner.start()
    node = plan.answer.root
    try:
        while (item := arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield decoded(result_frame(item.rows(node), node), node.codecs)
    finally:
        left.set()
        stop.set()
        runner.join()
