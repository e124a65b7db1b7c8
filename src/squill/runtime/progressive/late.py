"""What plans make of rows that are there at one progress point, computed when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from squill.engine.batch import Batch, endless, repeated
from squill.engine.columns import framed
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.plan.codec import Codec
from squill.plan.node import Node, walk
from squill.plan.nodes import Source
from squill.plan.nodes.movement import ShardInput
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import INFINITY, PROGRESS

__all__ = ["given_rows", "late_rows", "rows_made"]


def given_rows(columns: Schema, codecs: Mapping[str, Codec]) -> Source:
    """Return a source of rows with these columns, which are given when the plan runs."""
    return ShardInput(
        channel=0,
        label="rows",
        columns=columns,
        lifetime=None,
        time_type=PROGRESS,
        known=Properties(endless=True),
        encoded=tuple(codecs.items()),
    )


def late_rows(root: Node, rows: pl.DataFrame, progress: int) -> pl.DataFrame:
    """Return what a row by row plan makes of rows that are there at a progress point."""
    (source,) = (node for node in walk(root) if isinstance(node, Source))
    return rows_made(root, {id(source): rows}, progress)


def rows_made(root: Node, given: Mapping[int, pl.DataFrame], progress: int) -> pl.DataFrame:
    """Return what a plan makes of the rows that are `given` for each of its sources, all there at a progress point."""
    sink = CollectSink(root)
    with compile_plan(root, sink) as pipeline:
        for source, entry in pipeline.entries:
            rows = given[id(source)]
            if rows.height:
                columns = {name: rows[name].rechunk() for name in source.schema}
                entry.push(Batch(repeated(progress, rows.height), endless(rows.height), columns))
        for _, entry in pipeline.entries:
            entry.advance(INFINITY)
    return framed(list(sink.rows().columns.values()))
