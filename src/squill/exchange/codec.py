"""The form in which batches travel: one Arrow IPC stream each, readable by itself.

The record batch holds ``sync`` and ``other`` as int64 columns, then the payload. Times that follow a rule are
left out and the rule is sent instead: one time for all rows (*constant*), or ends at one distance from the
starts (*constant duration*, as points and windows have it). 64-bit integers whose values lie close together travel as
counts of steps from the least of them (`narrow`). What is left out, these least values with their steps, and the number
of rows stand in the schema's metadata. Strings travel as large strings, so that a slice sends its own bytes and no
others, and numbers of 128 bits, which Arrow has not, as text.

Decoding copies nothing else where the type allows it: numbers are views of the bytes that were read or mapped.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from squill.engine.arrow_form import arrow_array
from squill.engine.batch import Batch, Int64s
from squill.engine.columns import series_from, values_of
from squill.errors import InternalError
from squill.exchange.narrow import Narrow, narrowed, widened
from squill.plan.schema import Schema
from squill.plan.storable import storable
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["COMPRESSIONS", "Piece", "decode", "encode", "encoded_pieces", "encoding_seconds"]

COMPRESSIONS = ("lz4", "zstd")
METADATA = b"squill"
_INT64 = pa.int64()
_TEXT = (pl.Categorical, pl.Enum)
_LONG_INTEGERS = (pl.Int64, pl.UInt64, pl.Datetime, pl.Duration, pl.Time)

Piece: TypeAlias = bytes | pa.Buffer
SMALL_BYTES = 4_096
"""Pieces smaller than this are copied: each has its price."""


class _Spent(threading.local):
    seconds = 0.0


_SPENT = _Spent()


def encoding_seconds() -> float:
    """Return how long this thread has been encoding, since it began."""
    return _SPENT.seconds


def encode(batch: Batch, compression: str | None = None) -> pa.Buffer:
    """Return the rows as bytes; `compression` is None, "lz4" or "zstd".

    Examples
    --------
    >>> times = np.array([5, 5, 5])
    >>> batch = Batch(times, times + 10, {"x": pl.Series([1, None, 3])})
    >>> decode(encode(batch), Schema({"x": pl.Int64()})).columns["x"].to_list()
    [1, None, 3]
    """
    return pa.py_buffer(b"".join(encoded_pieces(batch, compression)))


def encoded_pieces(batch: Batch, compression: str | None = None) -> list[Piece]:
    """Return the bytes in pieces, to be written one after the other; the columns' own memory is among them.

    To put the pieces together first takes as long as to write them.
    """
    begin = time.perf_counter()
    try:
        return _encoded(batch, compression)
    finally:
        _SPENT.seconds += time.perf_counter() - begin


def _encoded(batch: Batch, compression: str | None) -> list[Piece]:
    times = _time_rules(batch)
    names: list[str] = []
    arrays: list[pa.Array] = []
    bases: dict[int, tuple[int, int]] = {}
    for name in ("sync", "other"):
        if name not in times:
            _add(arrays, bases, narrowed(getattr(batch, name)), partial(pa.array, getattr(batch, name)))
            names.append(name)
    for name, series in batch.columns.items():
        _add(arrays, bases, _narrow_column(series), partial(_to_arrow, series))
        names.append(name)
    header = json.dumps({"rows": len(batch), "bases": bases, **times}).encode()
    fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
    schema = pa.schema(fields, metadata={METADATA: header})
    sink = _Pieces()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return sink.pieces()


def _add(
    arrays: list[pa.Array], bases: dict[int, tuple[int, int]], narrow: Narrow | None, whole: Callable[[], pa.Array]
) -> None:
    if narrow is not None:
        bases[len(arrays)] = narrow.base, narrow.step
    arrays.append(whole() if narrow is None else pa.array(narrow.counts))


def _narrow_column(series: pl.Series) -> Narrow | None:
    if type(series.dtype) not in _LONG_INTEGERS or series.null_count():
        return None
    return narrowed(values_of(series).view(np.int64))


class _Pieces:
    """A file that keeps what is written to it: Arrow hands columns over by reference. Small pieces are put together."""

    closed = False

    def __init__(self) -> None:
        self._done: list[Piece] = []
        self._small: list[Piece] = []

    def write(self, data: Piece) -> int:
        if len(data) < SMALL_BYTES:
            self._small.append(data)
        else:
            self._join_small()
            self._done.append(data)
        return len(data)

    def pieces(self) -> list[Piece]:
        self._join_small()
        return self._done

    def _join_small(self) -> None:
        if self._small:
            self._done.append(b"".join(self._small))
            self._small = []

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """What was written stays."""


def _time_rules(batch: Batch) -> dict[str, Any]:
    """Return what the times can be computed from; both ends are looked at first, to give up early."""
    sync, other = batch.sync, batch.other
    rules: dict[str, Any] = {}
    if not len(batch):
        return {"sync": 0, "other": 0}
    if batch.is_timeless:
        return {"sync": MINUS_INFINITY, "other": INFINITY}
    if sync[0] == sync[-1]:
        rules["sync"] = int(sync[0])
    if other[0] == other[-1] and bool((other == other[0]).all()):
        rules["other"] = int(other[0])
    else:
        # The difference may wrap around, and adding it wraps back.
        ends = other[[0, -1]] - sync[[0, -1]]
        if ends[0] == ends[1] and bool((other - sync == ends[0]).all()):
            rules["other"] = {"after": int(ends[0])}
    return rules


def _to_arrow(series: pl.Series) -> pa.Array:
    if isinstance(series.dtype, _TEXT):
        series = series.cast(pl.String)
    return arrow_array(storable(series))


def decode(data: pa.Buffer, schema: Schema) -> Batch:
    """Return the rows that `encode` was given; `schema` says the payload's types."""
    with pa.ipc.open_stream(data) as reader:
        record = reader.read_next_batch()
        header = json.loads(reader.schema.metadata[METADATA])
    rows = header["rows"]
    bases = header.get("bases", {})  # checkpoints of before have none, or no steps
    columns = (_Sent(array, _base_and_step(bases.get(str(place)))) for place, array in enumerate(record.columns))
    if rows and header.get("sync") == MINUS_INFINITY and header.get("other") == INFINITY:
        return Batch.relational(_payload(columns, schema), rows)
    sync = _times(header.get("sync"), columns, rows, None)
    other = _times(header.get("other"), columns, rows, sync)
    return Batch(sync, other, _payload(columns, schema))


def _base_and_step(found: Any) -> tuple[int, int] | None:
    return (found, 1) if isinstance(found, int) else found


class _Sent(NamedTuple):
    """A column as it has travelled; with `narrow`, a base and a step, it holds the counts of steps from there."""

    array: pa.Array
    narrow: tuple[int, int] | None

    def values(self) -> Int64s:
        values: Int64s = self.array.to_numpy(zero_copy_only=True)
        return values if self.narrow is None else widened(values, *self.narrow)


def _payload(columns: Iterator[_Sent], schema: Schema) -> dict[str, pl.Series]:
    return {name: _to_series(name, sent, schema[name]) for name, sent in zip(schema, columns, strict=True)}


def _times(rule: Any, columns: Iterator[_Sent], rows: int, sync: Int64s | None) -> Int64s:
    if rule is None:
        return next(columns).values()
    if isinstance(rule, int):
        return np.full(rows, rule, np.int64)
    if sync is None:
        raise InternalError("a batch's sync follows no rule that this version knows")
    return sync + np.int64(rule["after"])


def _to_series(name: str, sent: _Sent, dtype: pl.DataType) -> pl.Series:
    if sent.narrow is not None:
        values = sent.values()
        return series_from(name, values.view(np.uint64) if isinstance(dtype, pl.UInt64) else values, None, dtype)
    series = pl.Series(name, sent.array)
    return series if series.dtype == dtype else series.cast(dtype)
