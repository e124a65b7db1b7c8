"""Input rows as batches: read the times off the rows, check them and the promises, sort, cut.

Policies for late events live in `squill.engine.disorder`; stored input is never late, it is sorted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.columns import as_int64, framed, valid_of, values_of
from squill.engine.kernels.lifetimes import bounds, bounds_and_order
from squill.engine.promises import PromiseCheck
from squill.engine.row_filter import RowFilter
from squill.engine.time_sorter import earliest_later, in_time_order
from squill.errors import InputError, TimeOverflowError
from squill.plan.expressions import Expression
from squill.plan.nodes import FrameSource, Source
from squill.plan.nodes.sources import Lifetime
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Arrival", "RowReader", "cut", "frame_batches"]

Columns = Mapping[str, pl.Series]


@dataclass(slots=True, frozen=True)
class Arrival:
    """What a stored source gives next: rows in time order, then perhaps a promise that it makes itself.

    `clock` says that nothing below it follows; without one no more is known than the last row's sync.
    """

    batch: Batch | None
    clock: int | None = None


def frame_batches(source: FrameSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the rows of a frame in time order."""
    keep = None if source.predicate is None else RowFilter(source.predicate, source.time)
    reader = RowReader(source, keep)
    if len(source.blocks) > 1 and source.lifetime is not None:
        # The rows are in memory anyway, so there is nothing to gain from writing them to disk.
        batches = in_time_order(_read_blocks(source, source.lifetime.start, reader), memory_bytes=sys.maxsize)
    else:
        reader.first_row = source.blocks[0][0] if source.blocks else 0
        batches = iter([reader.read(_columns_of(source.frame), source.frame.height).sorted_by_sync()])
    for batch in batches:
        yield from cut(batch, batch_rows)


def _read_blocks(source: FrameSource, start: Expression, reader: RowReader) -> Iterator[tuple[Batch, int]]:
    """Yield the blocks, and the earliest time that may still come."""
    sizes = [size for _, size in source.blocks]
    ends = list(accumulate(sizes))
    blocks = [source.frame.slice(end - size, size) for size, end in zip(sizes, ends, strict=True)]
    is_open = source.lifetime is not None and source.lifetime.null_start
    lows = [_earliest(block, start, source.label, null_start=is_open) for block in blocks]
    for (first, size), block, until in zip(source.blocks, blocks, earliest_later(lows), strict=True):
        reader.skip_to(first)
        yield reader.read(_columns_of(block), size), until


def _earliest(block: pl.DataFrame, start: Expression, label: str, *, null_start: bool) -> int:
    series = _evaluate(_columns_of(block.select(start.roots)), block.height, start, label)
    is_open = null_start and series.null_count() > 0
    return MINUS_INFINITY if is_open else int(bounds(as_int64(series)[0])[0])


def _columns_of(frame: pl.DataFrame) -> Columns:
    return {series.name: series.rechunk() for series in frame.get_columns()}


def cut(batch: Batch, batch_rows: int) -> Iterator[Arrival]:
    """Yield the batch in pieces of at most `batch_rows`."""
    for low in range(0, len(batch), batch_rows):
        yield Arrival(batch.slice(low, min(low + batch_rows, len(batch))))


class RowReader:
    """Turns pieces of a source's own columns into rows with lifetimes, in the order they stand.

    Errors name the input `label` and number rows from `first_row` on; `empty` counts rows that were left out
    because they end where they start. With `keep` only the rows that it keeps come out, and only their times
    are looked at beyond nulls: a filter that keeps few rows then costs no pass over the times of all.
    """

    def __init__(self, source: Source, keep: RowFilter | None = None) -> None:
        self._source = source
        self._keep = keep
        self._payload = tuple(source.schema)
        self._check = PromiseCheck(source)
        self.label = source.label
        self.first_row = 0
        self.empty = 0
        lifetime = source.lifetime
        self._is_point = lifetime is not None and lifetime.end is None and lifetime.kind == "point"
        dtype = None if lifetime is None else lifetime.start.dtype
        self._is_int64 = isinstance(dtype, (pl.Int64, pl.Datetime))
        self._is_unsigned = isinstance(dtype, pl.UInt64)
        self._null_start = lifetime is not None and lifetime.null_start

    def skip_to(self, row: int) -> None:
        """Go on with this row; those in between are read elsewhere, and keys are never cut."""
        if row != self.first_row:
            self._check.leave_key()
        self.first_row = row

    def read(self, columns: Columns, size: int, beside: Columns | None = None) -> Batch:
        """Return the rows of one-chunk columns, with what goes `beside`; nothing of a piece that raises is taken."""
        payload = {name: columns[name] for name in self._payload}
        if beside is not None:
            payload.update(beside)
        lifetime = self._source.lifetime
        if lifetime is None:
            batch = Batch.relational(payload, size)
            batch = batch if self._keep is None else self._keep(batch)
        elif self._keep is None:
            batch = self._lasting(columns, size, payload, lifetime)
        else:
            batch = self._filtered(columns, size, payload, lifetime, self._keep)
        self._check(columns, self.first_row, self.label)
        self.first_row += size
        return self._without_empty(batch) if lifetime is not None and lifetime.end is not None else batch

    def _lasting(self, columns: Columns, size: int, payload: dict[str, pl.Series], lifetime: Lifetime) -> Batch:
        starts = self._ticks(columns, size, lifetime.start)
        in_order = self._check_range(starts, starts, lifetime.start.name)
        batch = Batch(starts, self._ends(columns, starts, lifetime), payload)
        batch.is_ordered = in_order
        return batch

    def _filtered(
        self, columns: Columns, size: int, payload: dict[str, pl.Series], lifetime: Lifetime, keep: RowFilter
    ) -> Batch:
        starts = self._ticks(columns, size, lifetime.start)
        batch = keep(Batch(starts, self._ends(columns, starts, lifetime), payload))
        batch.is_ordered = self._check_range(batch.sync, starts, lifetime.start.name)
        return batch

    def _ticks(self, columns: Columns, size: int, start: Expression) -> Int64s:
        series = _evaluate(columns, size, start, self.label)
        if series.null_count() and self._null_start:
            return np.where(valid_of(series).view(np.bool_), as_int64(series)[0], MINUS_INFINITY)
        if series.null_count():
            row = int(np.argmin(valid_of(series)))
            raise InputError(
                f"input {self.label!r}: the start time {start.name!r} is null in {self._shown(columns, row)}",
                "remove such rows, or fill the time in, before giving the data to Squill.",
            )
        return values_of(series) if self._is_int64 else as_int64(series)[0]

    def _check_range(self, ticks: Int64s, all_ticks: Int64s, name: str) -> bool:
        """Refuse times that cannot be, naming the first of all the rows given; return whether they are in order."""
        low, high, in_order = bounds_and_order(ticks)
        if low == MINUS_INFINITY and self._null_start:
            return bool(in_order)  # our own answer: its times were looked at when it was made
        if len(ticks) and (low <= MINUS_INFINITY or high == INFINITY or (low < 0 and self._is_unsigned)):
            wrong = (all_ticks <= (-1 if self._is_unsigned else MINUS_INFINITY)) | (all_ticks == INFINITY)
            raise self._out_of_range(name, int(np.argmax(wrong)))
        if high == INFINITY - 1 and self._is_point:
            raise TimeOverflowError(
                f"input {self.label!r}: the point at {high} ends outside the 64-bit range of times",
                "use earlier times, or coarser ticks.",
            )
        return bool(in_order)

    def _out_of_range(self, name: str, row: int) -> InputError:
        return InputError(
            f"input {self.label!r}: the time {name!r} in row {self.first_row + row} is outside the "
            "64-bit range of times",
            "times lie strictly between −2^63 + 1 and 2^63 − 1 ticks.",
        )

    def _ends(self, columns: Columns, starts: Int64s, lifetime: Lifetime) -> Int64s | int:
        if lifetime.end is None:
            return 1 if self._is_point else INFINITY
        series = _evaluate(columns, len(starts), lifetime.end, self.label)
        if series.dtype == pl.Null():
            series = series.cast(pl.Int64)
        ends, valid = as_int64(series)
        if series.null_count():
            ends = np.where(valid.view(np.bool_), ends, INFINITY)
        if series.dtype == pl.UInt64() and bounds(ends)[0] < 0:
            raise self._out_of_range(lifetime.end.name, int(np.argmin(ends)))
        backwards = ends < starts
        if backwards.any():
            row = int(np.argmax(backwards))
            raise InputError(
                f"input {self.label!r}: the event in {self._shown(columns, row)} ends before it starts",
                "swap the columns, or repair the row; start = end is an empty lifetime and is dropped.",
            )
        return ends

    def _without_empty(self, batch: Batch) -> Batch:
        """Drop rows whose lifetime is empty, as slowly changing tables have them."""
        kept = batch.filter(batch.other > batch.sync)
        self.empty += len(batch) - len(kept)
        return kept

    def _shown(self, columns: Columns, row: int) -> str:
        values = {name: series[row] for name, series in columns.items()}
        return f"row {self.first_row + row}: {values}"


def _evaluate(columns: Columns, size: int, expression: Expression, label: str) -> pl.Series:
    if expression.source_column is not None:
        return columns[expression.source_column]
    frame = framed([columns[name] for name in expression.roots])
    try:
        series = frame.select(expression.expr).to_series()
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"input {label!r}: the time {expression} failed on {size} rows: {str(error).splitlines()[0]}",
            "check the values, or compute the time before giving the data to Squill.",
        ) from error
    # Literals alone have no length of their own.
    return series.rechunk() if expression.roots else series.new_from_index(0, size)
