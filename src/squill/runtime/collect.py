"""The answer of a sharded plan as one frame."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import polars as pl

from squill.engine.batch import Batch
from squill.engine.codecs import decoded
from squill.engine.egress import result_frame
from squill.exchange.merge import merge_by_time
from squill.plan.build.checks import refuse_objects
from squill.plan.fragments import ShardedPlan
from squill.runtime.answer import CollectAnswer, Receipt
from squill.runtime.progress import progress_bar
from squill.runtime.report import RunReport, Work
from squill.runtime.runtime import Runtime
from squill.runtime.threads import Checkpoint, run_on_threads
from squill.runtime.ticket import RunTicket

__all__ = ["Run", "answer_frame", "collect", "run"]

ROWS_PER_THREAD = 1 << 18
"""With fewer a thread costs more than it spares."""


@dataclass(frozen=True)
class Run:
    """A run that is over: its answer, what it did, and the id under which the catalog has it."""

    frame: pl.DataFrame
    _report: RunReport
    id: str = ""

    def report(self) -> RunReport:
        """Return where the time went, by fragment and shard; printed, a table and the limit that binds."""
        return self._report


def collect(runtime: Runtime, plan: ShardedPlan, *, sort: bool, ticket: RunTicket | None = None) -> pl.DataFrame:
    """Run the plan and return its rows, ordered by start; with `sort` by start, end, then the columns."""
    if sort:
        refuse_objects("collect(sort=True)", plan.answer.root)
    with progress_bar() as bar:
        receipts = runtime.run(plan, CollectAnswer(), bar, ticket=ticket)
    frame = answer_frame(receipts, plan)
    if sort and frame.width:
        frame = frame.sort(frame.columns, nulls_last=False)
    return decoded(frame, plan.answer.root.codecs)


def run(runtime: Runtime, plan: ShardedPlan, ticket: RunTicket) -> Run:
    """Run the plan and return its rows, ordered by start, with a report."""
    works: list[Work] = []
    begin = time.perf_counter()
    with progress_bar() as bar:
        receipts = runtime.run(plan, CollectAnswer(), bar, works=works, ticket=ticket)
    frame = decoded(answer_frame(receipts, plan), plan.answer.root.codecs)
    return Run(frame, RunReport(works, time.perf_counter() - begin), ticket.id)


def answer_frame(receipts: list[Receipt], plan: ShardedPlan) -> pl.DataFrame:
    """Return the rows of all shards, merged; the receipts are used up, so that no row is held twice for long."""
    node = plan.answer.root
    rows = sum(len(piece) for receipt in receipts for piece in receipt.pieces)
    threads = min(len(receipts), len(os.sched_getaffinity(0)), max(1, rows // ROWS_PER_THREAD))
    merges = merge_by_time([receipt.pieces for receipt in receipts], threads)
    receipts.clear()

    def frames(merge: Callable[[], list[Batch]], _: Checkpoint) -> list[pl.DataFrame]:
        return [result_frame(batch, node) for batch in merge()]

    parts = run_on_threads([partial(frames, merge) for merge in merges], threads)
    found = [frame for part in parts for frame in part] or [result_frame(Batch.empty(dict(node.schema)), node)]
    return pl.concat(found, rechunk=False)
