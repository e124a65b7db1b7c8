"""The answer of a sharded plan as one frame."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.plan.fragments import Fragment
from squill.runtime.progress import progress_line
from squill.runtime.runtime import Runtime

__all__ = ["collect"]


def collect(runtime: Runtime, fragments: Sequence[Fragment], *, sort: bool) -> pl.DataFrame:
    """Run the fragments and return the rows, ordered by start; with `sort` by start, end, then the columns."""
    line = progress_line()
    try:
        batches = runtime.run(fragments, line)
    finally:
        if line is not None:
            line.clear()
    node = fragments[-1].root
    batches = batches or [Batch.empty(dict(node.schema))]
    frame = pl.concat([result_frame(batch, node) for batch in batches], rechunk=False)
    return frame.sort(frame.columns, nulls_last=False) if sort and frame.width else frame
