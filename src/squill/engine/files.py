"""Files as batches in time order, read in pieces.

A parquet file is read by row groups, whose statistics say the earliest time in each: pieces are read in the
order of these times, and rows leave once no piece still to come can hold an earlier one. Of other files
nothing is known before they are read; they are sorted in bounded memory (`TimeSorter`), unless `sorted_by=`
promises their order. Polars reads the pieces: only the columns needed, with the predicate pushed down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from squill.engine import time_sorter
from squill.engine.batch import Batch
from squill.engine.ingress import Arrival, RowReader, cut
from squill.engine.time_sorter import earliest_later, in_time_order
from squill.errors import InputError, SourceReadError
from squill.plan.build.files import changed_type, first_line, scan_files, unreadable_hint
from squill.plan.nodes import FileSource
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Piece", "file_batches", "pieces_of"]

PIECE_ROWS = 262_144
"""Row groups smaller than this are read together."""
CHUNK_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file; `low` is a time that none of its rows is before."""

    path: str
    offset: int = 0
    rows: int | None = None
    low: int = MINUS_INFINITY


def file_batches(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the files' rows in time order."""
    if source.lifetime is None:
        return _relational(source, batch_rows)
    if _promised_in_order(source):
        return _in_order(source, batch_rows)
    return _sorted(source, batch_rows)


def _relational(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    reader = RowReader(source)
    for path in source.paths:
        reader.label, reader.first_row = path, 0
        for frame in _frames(source, Piece(path)):
            yield from cut(reader.read(_columns(frame), frame.height), batch_rows)


def _promised_in_order(source: FileSource) -> bool:
    assert source.lifetime is not None
    return source.promises.sorted_by[:1] == (source.lifetime.start.source_column,)


def _in_order(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    """Read straight through; the promise is checked even where it is trusted, since all else rests on it."""
    reader = RowReader(source)
    last = MINUS_INFINITY
    assert source.time is not None
    for path in source.paths:
        reader.label, reader.first_row = path, 0
        for frame in _frames(source, Piece(path)):
            batch = reader.read(_columns(frame), frame.height)
            if not len(batch):
                continue
            if int(batch.sync[0]) < last or batch.sorted_by_sync() is not batch:
                raise InputError(
                    f"input {source.label!r}: {path!r} is not in the order that sorted_by= promises: a row is "
                    f"before {source.time.show(max(last, int(batch.sync[0])))}",
                    "drop the promise, or sort the file.",
                )
            last = int(batch.sync[-1])
            yield from cut(batch, batch_rows)


def _sorted(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    for batch in in_time_order(_read_pieces(source), time_sorter.MEMORY_BYTES):
        yield from cut(batch, batch_rows)


def _read_pieces(source: FileSource) -> Iterator[tuple[Batch, int]]:
    """Yield rows, and the earliest time that may still come."""
    reader = RowReader(source)
    pieces = pieces_of(source)
    for piece, until in zip(pieces, earliest_later([piece.low for piece in pieces]), strict=True):
        reader.label, reader.first_row = piece.path, piece.offset
        held: Batch | None = None
        for frame in _frames(source, piece):
            if held is not None:
                yield held, MINUS_INFINITY
            held = reader.read(_columns(frame), frame.height)
        if held is not None:
            yield held, until


def pieces_of(source: FileSource) -> list[Piece]:
    """Return what to read one after the other: by earliest time, or as the files stand where order is promised."""
    pieces = [piece for path in source.paths for piece in _pieces_of_file(path, source)]
    if source.promises.sorted_by or source.promises.packed:
        return pieces
    return sorted(pieces, key=lambda piece: piece.low)


def _pieces_of_file(path: str, source: FileSource) -> list[Piece]:
    assert source.lifetime is not None
    column = source.lifetime.start.source_column
    if source.format != "parquet" or column is None:
        return [Piece(path)]
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return [Piece(path)]  # Polars reads it, or says what is wrong with it
    found = [place for place, item in enumerate(metadata.schema) if item.path == column]
    if len(found) != 1 or not metadata.num_rows:
        return [Piece(path)]
    pieces: list[Piece] = []
    offset = rows = 0
    low = INFINITY
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows += group.num_rows
        low = min(low, _earliest(group.column(found[0])))
        if rows >= PIECE_ROWS or number == metadata.num_row_groups - 1:
            pieces.append(Piece(path, offset, rows, low))
            offset, rows, low = offset + rows, 0, INFINITY
    return pieces


def _earliest(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the least time of a row group in ticks, or minus infinity when the file does not say."""
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max or chunk.physical_type not in ("INT32", "INT64"):
        return MINUS_INFINITY
    # The physical value is the number of ticks, except that unsigned numbers are stored as signed ones.
    value = statistics.min if statistics.logical_type.type == "INT" else statistics.min_raw
    return max(int(value), MINUS_INFINITY) if isinstance(value, int) and value < INFINITY else MINUS_INFINITY


def _needed(source: FileSource) -> list[str]:
    times = () if source.lifetime is None else source.lifetime.roots
    promised = (*source.promises.sorted_by, *source.promises.packed, *source.promises.unique)
    checked = () if source.promises.trust else promised
    needed = {*source.schema, *times, *checked}
    return [name for name in source.columns if name in needed] or list(source.columns)[:1]


def _frames(source: FileSource, piece: Piece) -> Iterator[pl.DataFrame]:
    lazy = scan_files(piece.path, source.format, source.columns)
    if piece.rows is not None:
        lazy = lazy.slice(piece.offset, piece.rows)
    if source.predicate is not None:
        lazy = lazy.filter(source.predicate.expr)
    try:
        yield from lazy.select(_needed(source)).collect_batches(chunk_size=CHUNK_ROWS, maintain_order=True)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _read_error(source, piece, error) from error


def _read_error(source: FileSource, piece: Piece, error: Exception) -> InputError:
    if source.predicate is not None and _readable(source, piece):
        return InputError(
            f"where: the condition {source.predicate} failed on the rows of {piece.path!r}: {first_line(error)}",
            "check the values; .cast(…, strict=False) gives null instead of an error.",
        )
    changed = changed_type(source.paths[0], piece.path, source.format)
    if changed is not None:
        return changed
    return SourceReadError(
        f"scan: {piece.path!r} cannot be read as {source.format}: {first_line(error)}", unreadable_hint(source.format)
    )


def _readable(source: FileSource, piece: Piece) -> bool:
    try:
        for _ in scan_files(piece.path, source.format, source.columns).collect_batches(chunk_size=CHUNK_ROWS):
            pass
    except (pl.exceptions.PolarsError, OSError):
        return False
    return True


def _columns(frame: pl.DataFrame) -> dict[str, pl.Series]:
    return {series.name: series.rechunk() for series in frame.get_columns()}
