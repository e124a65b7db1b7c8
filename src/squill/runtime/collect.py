"""The answer of a sharded plan as one frame."""

from __future__ import annotations

import polars as pl

from squill.engine.batch import Batch
from squill.engine.codecs import decoded
from squill.engine.egress import result_frame
from squill.exchange.merge import merge_runs
from squill.plan.fragments import ShardedPlan
from squill.runtime.answer import CollectAnswer
from squill.runtime.progress import progress_line
from squill.runtime.runtime import Runtime

__all__ = ["collect"]


def collect(runtime: Runtime, plan: ShardedPlan, *, sort: bool) -> pl.DataFrame:
    """Run the plan and return its rows, ordered by start; with `sort` by start, end, then the columns."""
    with progress_line() as line:
        receipts = runtime.run(plan, CollectAnswer(), line)
    node = plan.answer.root
    batches = list(merge_runs([receipt.pieces for receipt in receipts])) or [Batch.empty(dict(node.schema))]
    frame = pl.concat([result_frame(batch, node) for batch in batches], rechunk=False)
    if sort and frame.width:
        frame = frame.sort(frame.columns, nulls_last=False)
    return decoded(frame, node.codecs)
