"""Rows of Spark's that become Arrow files of a run, written by its tasks, before plans over files begin."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from squill.plan.fragments import Fragment, ShardedPlan
from squill.plan.node import Node
from squill.plan.nodes import FileSource, Stored
from squill.plan.nodes.tables import CachedSource, SpooledSource, TableSource
from squill.plan.rebuild import substitute
from squill.plan.schema import Schema
from squill.runtime.spark.cache import cached_files
from squill.runtime.spark.tables import map_rows, read_names, rows_for, tables_of

__all__ = ["spooled", "written_files"]

SPOOLED = "path string, rows bigint"


def spooled(plan: ShardedPlan, folder: Path) -> ShardedPlan:
    """Return the plan with its DataFrames written as Arrow files into the folder."""
    written: dict[int, Node] = {}
    for _, _, source in tables_of(plan):
        if id(source) not in written:
            written[id(source)] = _spool(source, folder)
    if not written:
        return plan

    def read_files(fragment: Fragment) -> Fragment:
        return replace(fragment, root=substitute(fragment.root, lambda node: written.get(id(node))))

    return ShardedPlan(fragments=tuple(map(read_files, plan.fragments)))


def written_files(source: FileSource, table: Any, folder: Path) -> tuple[list[str], Schema]:
    """Let Spark's tasks write what a source reads of a DataFrame as Arrow files; return these and their columns."""
    schema = _arrow_schema(source)
    write = partial(_write, str(folder), uuid.uuid4().hex, schema)
    lines = map_rows(rows_for(source, table), write, SPOOLED).toArrow().to_pylist()
    return sorted(line["path"] for line in lines), source.columns.only(schema.names)


def _spool(source: TableSource, folder: Path) -> Node:
    if isinstance(source, CachedSource):
        lines = cached_files(source, folder)
        shard_of, rows = (tuple(line[name] for line in lines) for name in ("shard", "rows"))
        assert source.stored is not None
        stored = replace(source.stored, shard_of=shard_of, rows=rows)
        return _over(source, [line["path"] for line in lines], source.columns.only(read_names(source)), stored)
    return _over(source, *written_files(source, source.table, folder))


def _over(source: TableSource, paths: Sequence[str], columns: Schema, stored: Stored | None = None) -> Node:
    return SpooledSource(
        label=source.label,
        columns=columns,
        lifetime=source.lifetime,
        promises=source.promises,
        paths=tuple(paths),
        format="ipc",
        read=source.read,
        predicate=source.predicate,
        stored=stored,
    )


def _arrow_schema(source: FileSource) -> pa.Schema:
    names = read_names(source)
    return pl.DataFrame(schema={name: source.columns[name] for name in names}).to_arrow().schema


def _write(folder: str, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one partition as one file; what an attempt that does not count has written is not read."""
    context = TaskContext.get()
    assert context is not None
    path = Path(folder) / f"table-{name}-p{context.partitionId()}-a{context.taskAttemptId()}.arrow"
    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            rows += batch.num_rows
            # The session's time zone is in the type; the instants are the same.
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    yield pa.RecordBatch.from_pydict({"path": [str(path)], "rows": pa.array([rows], pa.int64())})
