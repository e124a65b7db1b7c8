"""What of an answer is computed when somebody looks at it."""

from __future__ import annotations

import polars as pl

from squill.engine.batch import Batch, endless, repeated
from squill.engine.columns import framed
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.plan.node import Node
from squill.time import INFINITY

__all__ = ["late_rows"]


def late_rows(root: Node, rows: pl.DataFrame, progress: int) -> pl.DataFrame:
    """Return what a row by row plan makes of rows that are there at a progress point."""
    sink = CollectSink(root)
    ((_, entry),) = compile_plan(root, sink).entries
    columns = {series.name: series.rechunk() for series in rows.get_columns()}
    if rows.height:
        entry.push(Batch(repeated(progress, rows.height), endless(rows.height), columns))
    entry.advance(INFINITY)
    return framed(list(sink.rows().columns.values()))
