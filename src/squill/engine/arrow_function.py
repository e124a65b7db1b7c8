"""A query as a function of Arrow batches, to run inside somebody else's task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import polars as pl
import pyarrow as pa

from squill.engine.arrow_form import arrow_table
from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.compile import compile_plan
from squill.engine.disorder import DisorderBuffer
from squill.engine.egress import result_frame
from squill.engine.egress_closed import ClosedSink
from squill.engine.ingress import Arrival, RowReader, cut
from squill.engine.run import source_arrivals, steps
from squill.errors import InputError
from squill.plan.arrow_frames import from_arrow
from squill.plan.node import Node
from squill.plan.nodes.sources import FedSource
from squill.plan.rewrite import rewrite
from squill.plan.serialise import dumps, loads
from squill.plan.storable import refuse_unstorable
from squill.time import INFINITY
from squill.wording import kind_of

__all__ = ["ArrowFunction"]


class ArrowFunction:
    """Rows of the query's input in, rows of its answer out, batch by batch; every call is a run of its own.

    It can be pickled, by any pickler, and so sent to other processes that have Squill.
    """

    def __init__(self, plan: Node) -> None:
        refuse_unstorable(plan.schema, "as_arrow_function")
        self._plan = dumps(plan)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches that come out."""
        node = loads(self._plan)
        return _table(Batch.empty(dict(node.schema)), node).schema

    def __getstate__(self) -> bytes:
        return self._plan

    def __setstate__(self, plan: bytes) -> None:
        self._plan = plan

    def __repr__(self) -> str:
        return f"ArrowFunction(-> {', '.join(f'{field.name}: {field.type}' for field in self.schema)})"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        node = rewrite(loads(self._plan))
        sink = ClosedSink(node, at_once=True)
        with compile_plan(node, sink) as pipeline:
            inputs = [
                (
                    fed_arrivals(source, batches)
                    if isinstance(source, FedSource)
                    else source_arrivals(source, DEFAULT_BATCH_ROWS),
                    entry,
                )
                for source, entry in pipeline.entries
            ]
            for _ in steps(inputs, clocks=True):
                yield from _ready(sink)
        yield from _ready(sink)


def _ready(sink: ClosedSink) -> Iterator[pa.RecordBatch]:
    rows = sink.take_rows()
    if rows is not None:
        yield from _table(rows.sorted_by_sync(), sink.node).to_batches(DEFAULT_BATCH_ROWS)


def _table(rows: Batch, node: Node) -> pa.Table:
    return arrow_table(result_frame(rows, node))


def fed_arrivals(source: FedSource, batches: Iterable[pa.RecordBatch]) -> Iterator[Arrival]:
    """Yield the rows in time order: as they come where the source says how, else once all of them are there."""
    if not isinstance(batches, Iterable):
        raise _wrong(source, batches, "an iterator of Arrow batches")
    reader = RowReader(source)
    pieces = (reader.read(_columns(source, batch), batch.num_rows) for batch in batches)
    if source.disorder is not None:
        yield from _through_policy(source, pieces)
    elif source.comes_in_order:
        for piece in pieces:
            yield from cut(piece, DEFAULT_BATCH_ROWS)
    else:
        held = [piece for piece in pieces if len(piece)]
        if held:
            yield from cut(Batch.concat(held).sorted_by_sync(), DEFAULT_BATCH_ROWS)


def _through_policy(source: FedSource, pieces: Iterable[Batch]) -> Iterator[Arrival]:
    assert source.time is not None
    assert source.disorder is not None
    wait = source.time.ticks(source.disorder.wait, "source: wait")
    buffer = DisorderBuffer(source.disorder.policy, wait, source.label, source.time, keep_late=0)
    for piece in pieces:
        yield Arrival(buffer.push(piece), buffer.clock)
    yield Arrival(buffer.complete(), INFINITY)


def _wrong(source: FedSource, given: object, wanted: str) -> InputError:
    return InputError(
        f"input {source.label!r}: the function was given {kind_of(given)}, not {wanted}",
        "give an iterator of pyarrow.RecordBatch.",
    )


def _columns(source: FedSource, batch: object) -> dict[str, pl.Series]:
    """Return the input's columns, each one chunk; what a batch has beside them is left alone."""
    if not isinstance(batch, (pa.RecordBatch, pa.Table)):
        raise _wrong(source, batch, "an Arrow batch")
    found = from_arrow(batch)
    columns: dict[str, pl.Series] = {}
    for name, dtype in source.columns.items():
        if name not in found.columns:
            raise InputError(
                f"input {source.label!r}: a batch has no column {name!r}; it has {', '.join(found.columns) or 'none'}",
                f"give the input's own columns: {', '.join(source.columns)}.",
            )
        series = found.get_column(name).rechunk()
        if series.dtype == pl.Null() != dtype:
            series = series.cast(dtype)  # nothing but nulls: Arrow had no type to tell
        if series.dtype != dtype:
            raise InputError(
                f"input {source.label!r}: the column {name!r} is {series.dtype} in a batch, not {dtype}",
                "cast it before, or declare the input with the types that come.",
            )
        columns[name] = series
    return columns
