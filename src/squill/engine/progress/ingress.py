"""Rows of a stored input in the order of progress.

All of them are read once before the first leaves: they are numbered, given their progress points, filtered, and
sorted by the first of these, on disk where memory does not hold them. So the first answer costs one scan.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from squill.engine import time_sorter
from squill.engine.batch import Batch, Int64s
from squill.engine.files import frames_of
from squill.engine.hashing import hash_columns
from squill.engine.ingress import Arrival, RowReader
from squill.engine.progress.arrivals import in_steps
from squill.engine.progress.points import Piece, points_of
from squill.engine.progress.splits import numbered_splits
from squill.engine.progress.stored import stored_batches
from squill.engine.progress.tally import Tally
from squill.engine.progress.timed import TimedRows
from squill.engine.row_filter import RowFilter
from squill.engine.time_sorter import in_time_order
from squill.errors import InternalError
from squill.plan.assignment import STEP, Stratified
from squill.plan.expressions import Expression
from squill.plan.nodes import FilePart, FileSource, FrameSource, Source
from squill.plan.nodes.progress import NumberedPart, ProgressSource
from squill.plan.schema import Schema
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["pieces_of_progress", "progress_batches", "ready_to_read", "strata"]

FEW_STEPS = 1 << 16


def progress_batches(source: ProgressSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the rows in the order of their first progress point."""
    if source.in_order:
        yield from stored_batches(source, batch_rows)
        return
    ready = ready_to_read(source)
    memory = sys.maxsize if isinstance(source.source, FrameSource) else time_sorter.MEMORY_BYTES
    for batch in in_time_order(_assigned(ready), memory):
        yield from in_steps(batch, batch_rows)


def ready_to_read(source: ProgressSource) -> ProgressSource:
    """Return the source with its splits known and, where it takes all rows to tell, the steps of its rows."""
    if source.in_order:
        # Its rows tell their steps, so that neither numbers nor strata are needed.
        parts = tuple(numbered_splits(source.source, source.assignment)) if source.parts is None else source.parts
        return replace(source, parts=parts, splits=len(parts))
    if source.parts is None:
        source = _numbered(source)
    if isinstance(source.assignment, Stratified) and source.given is None:
        source = replace(source, given=strata(source, source.assignment))
    return source


def _numbered(source: ProgressSource) -> ProgressSource:
    """Return the source with all splits of its input, and their lengths where all of them are known."""
    parts = tuple(numbered_splits(source.source, source.assignment))
    lengths = tuple(part.length for part in parts if part.length is not None)
    return replace(source, parts=parts, splits=len(parts), lengths=lengths if len(lengths) == len(parts) else ())


def _assigned(source: ProgressSource) -> Iterator[tuple[Batch, int]]:
    """Yield rows with their progress for time, and what may still be read: nothing after the last."""
    tally: Tally | None = source.tally
    # Where two fragments of a plan read the same rows, these count once.
    counts = tally is not None and tally.begin(source.reader)
    timed = TimedRows(_reading(source, _predicate(source.source)), tuple(source.schema)) if source.is_timed else None
    plain = _PlainRows(source)
    for piece in pieces_of_progress(source):
        starts, ends = points_of(piece)
        if counts and tally is not None:
            tally.add(starts, ends)
        rows = plain(piece, starts, ends) if timed is None else timed(piece, starts)
        yield _by_step(rows), MINUS_INFINITY
    if counts and tally is not None:
        tally.finish()
    yield Batch.empty(dict(source.schema)), INFINITY


class _PlainRows:
    """From pieces of an input that has no times to the rows that its filter keeps."""

    def __init__(self, source: ProgressSource) -> None:
        predicate = _predicate(source.source)
        self._payload = tuple(source.schema)
        self._keep = None if predicate is None else RowFilter(predicate, None, self._payload)
        # Before its filter, which comes after rows are numbered.
        self._reader = RowReader(_reading(source, None))
        self._lasting = source.lasting

    def __call__(self, piece: Piece, starts: Int64s, ends: Int64s | None) -> Batch:
        if piece.part.path is not None:
            self._reader.label = piece.part.path
        self._reader.skip_to(piece.part.offset + piece.first)
        read = self._reader.read(piece.columns, piece.size)
        rows = Batch(starts, self._lasting if ends is None else ends, read.columns)
        rows = rows if self._keep is None else self._keep(rows)
        if ends is not None:
            rows = rows.filter(rows.other > rows.sync)
        return rows.with_columns({name: rows.columns[name] for name in self._payload})


def _by_step(batch: Batch) -> Batch:
    """Return the rows in order; numpy sorts short numbers by counting, much quicker than long ones."""
    if not len(batch) or int(batch.sync.max()) >= FEW_STEPS:
        return batch.sorted_by_sync()
    if not np.count_nonzero(batch.sync[1:] < batch.sync[:-1]):
        batch.is_ordered = True
        return batch
    ordered = batch.take(np.argsort(batch.sync.astype(np.uint16), kind="stable"))
    ordered.is_ordered = True
    return ordered


def pieces_of_progress(source: ProgressSource, names: tuple[str, ...] | None = None) -> Iterator[Piece]:
    """Yield the rows of all parts as they stand, before any filter; of all columns needed, or of `names`."""
    assert source.parts is not None
    for stretch in _stretches(source.parts):
        for part, first, frame in _cut(_frames(source, stretch, names), stretch):
            columns = {series.name: series.rechunk() for series in frame.get_columns()}
            yield Piece(source, part, first, frame.height, columns)


def _cut(
    frames: Iterator[pl.DataFrame], stretch: Sequence[NumberedPart]
) -> Iterator[tuple[NumberedPart, int, pl.DataFrame]]:
    """Yield the rows of one part at a time: the part, the first of them in its split, and they themselves."""
    parts = iter(stretch)
    part = next(parts)
    first, left = part.first, part.rows
    for frame in frames:
        rest = frame
        while rest.height:
            while left == 0:
                part = next(parts)
                first, left = part.first, part.rows
            piece = rest if left is None else rest.head(left)
            yield part, first, piece
            first += piece.height
            left = None if left is None else left - piece.height
            rest = rest.slice(piece.height)


def _stretches(parts: Sequence[NumberedPart]) -> Iterator[Sequence[NumberedPart]]:
    """Yield parts that are read at once: neighbours in a file, each of which would be a query of its own."""
    begin = 0
    for number in range(1, len(parts) + 1):
        if number == len(parts) or not parts[number - 1].is_followed_by(parts[number]):
            yield parts[begin:number]
            begin = number


def _frames(
    source: ProgressSource, stretch: Sequence[NumberedPart], names: tuple[str, ...] | None
) -> Iterator[pl.DataFrame]:
    inner, part = source.source, stretch[0]
    if isinstance(inner, FrameSource):
        frame = inner.frame.slice(part.first - part.held, part.rows)
        yield frame if names is None else frame.select(names)
    elif isinstance(inner, FileSource) and part.path is not None:
        wanted = _wanted(source) if names is None else names
        bare = replace(inner, predicate=None, read=wanted, parts=None, columns=_stored_columns(source))
        rows = None if part.rows is None else sum(item.rows or 0 for item in stretch)
        yield from frames_of(bare, FilePart(part.path, part.offset + part.first, rows))
    else:
        raise InternalError(f"{inner.name} has no rows to put in another order")


def _reading(source: ProgressSource, predicate: Expression | None) -> Source:
    """Return the input with this filter, and with all columns it takes."""
    inner = source.source
    if isinstance(inner, FrameSource):
        return replace(inner, predicate=predicate, blocks=())
    assert isinstance(inner, FileSource)
    return replace(inner, predicate=predicate, parts=None, read=_wanted(source))


def _wanted(source: ProgressSource) -> tuple[str, ...]:
    predicate = _predicate(source.source)
    roots = () if predicate is None else predicate.roots
    lifetime = source.source.lifetime
    times = () if lifetime is None or not source.is_timed else lifetime.roots
    wanted = {*source.schema, *times, *source.assignment.columns, *roots, *((STEP,) if source.in_order else ())}
    return tuple(name for name in _stored_columns(source) if name in wanted)


def _stored_columns(source: ProgressSource) -> Schema:
    """Return the columns that the files have, that of the steps included."""
    return Schema({**source.columns, STEP: pl.Int64()}) if source.in_order else source.columns


def _predicate(source: Source) -> Expression | None:
    return source.predicate if isinstance(source, (FrameSource, FileSource)) else None


def strata(source: ProgressSource, assignment: Stratified) -> list[Int64s]:
    """Return the step of each row, split by split: the i-th row of a key, by number, comes at step i // k."""
    whole = _numbered(source)
    keys = [pl.Series([], dtype=pl.UInt64)]
    numbers, owners = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for piece in pieces_of_progress(whole, assignment.key):
        # Keys are equal when their hashes are, as everywhere in an assignment: two that collide share their steps.
        keys.append(pl.Series(hash_columns([piece.columns[name] for name in assignment.key])))
        numbers.append(piece.numbers)
        owners.append(np.full(piece.size, piece.part.split))
    table = pl.DataFrame({"key": pl.concat(keys), "number": np.concatenate(numbers)})
    place = pl.col("number").rank("ordinal").over("key").cast(pl.Int64) - 1
    steps = (table.select(place).to_series() // assignment.k).to_numpy()
    owner = np.concatenate(owners)
    return [steps[owner == split.split] for split in whole.parts or ()]
