"""Files as batches in time order, read in pieces.

A parquet file is read by row groups, whose statistics say the earliest time in each: pieces are read in the
order of these times, and rows leave once no piece still to come can hold an earlier one. Of other files
nothing is known before they are read; they are sorted in bounded memory (`TimeSorter`), unless `sorted_by=`
promises their order. Polars reads the pieces: only the columns needed, with the predicate pushed down.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, reduce
from itertools import accumulate
from typing import Any

import polars as pl

from squill.engine import time_sorter
from squill.engine.batch import Batch
from squill.engine.failing_row import first_failing
from squill.engine.file_ranges import arrow_frames, lines, require_rows
from squill.engine.ingress import Arrival, RowReader, cut
from squill.engine.row_groups import RowGroups, joined_groups, known_rows, row_groups
from squill.engine.time_sorter import earliest_later, in_time_order
from squill.engine.whole_frames import whole_frames
from squill.errors import InputError
from squill.plan.arrow_frames import arrow_holds
from squill.plan.build.files import TYPED, changed_type, first_line, other_types, unreadable
from squill.plan.build.folder_columns import file_rows, paths_to_read, with_folder_columns
from squill.plan.build.locations import read_errors
from squill.plan.nodes import FilePart, FileSource
from squill.plan.nodes.sources import UNITS
from squill.plan.paths import is_local
from squill.plan.schema import Schema
from squill.time import MINUS_INFINITY

__all__ = ["file_batches", "frames_of", "parts_of", "pieces_of", "read_error"]

PIECE_ROWS = 65_536
"""Row groups smaller than this count as one, of which no more is known than its earliest time."""
CHUNK_ROWS = 65_536
"""Rows are handed on as row groups have them, as that takes no copy; if those are smaller, about so many at a time."""
AHEAD_ROWS = 262_144
"""When so few rows of what is read are left, the next is begun: to begin takes as long as to read some 100,000."""


def file_batches(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the files' rows in time order."""
    if source.lifetime is None:
        return _relational(source, batch_rows)
    if _promised_in_order(source):
        return _in_order(source, batch_rows)
    return _sorted(source, batch_rows)


def _relational(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    reader = RowReader(source)
    for part, frames in _read_ahead(source, parts_of(source)):
        _begin(reader, source, part)
        for frame in frames:
            yield from cut(reader.read(_columns(frame), frame.height), batch_rows)


def _promised_in_order(source: FileSource) -> bool:
    assert source.lifetime is not None
    return source.promises.sorted_by[:1] == (source.lifetime.start.source_column,)


def _in_order(source: FileSource, batch_rows: int) -> Iterator[Arrival]:
    """Read straight through; the promise is checked even where it is trusted, since all else rests on it."""
    reader = RowReader(source)
    last = MINUS_INFINITY
    assert source.time is not None
    for part, frames in _read_ahead(source, parts_of(source)):
        _begin(reader, source, part)
        for frame in frames:
            batch = reader.read(_columns(frame), frame.height)
            if not len(batch):
                continue
            if int(batch.sync[0]) < last or batch.sorted_by_sync() is not batch:
                raise InputError(
                    f"input {source.label!r}: {part.path!r} is not in the order that sorted_by= promises: a row is "
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
    known = list(zip(pieces, earliest_later([piece.low for piece in pieces]), strict=True))
    is_counted = _is_counted(source)
    stretches = list(_stretches(known, is_counted=is_counted))
    wholes = [reduce(FilePart.joined, [piece for piece, _ in stretch]) for stretch in stretches]
    for stretch, (whole, frames) in zip(stretches, _read_ahead(source, wholes), strict=True):
        _begin(reader, source, whole)
        ends = list(accumulate(piece.size or 0 for piece, _ in stretch))
        # A piece may have no rows that are kept; the time after it is known all the same.
        held, until, rows = Batch.empty(dict(source.schema)), MINUS_INFINITY, 0
        for frame in frames:
            rows += frame.height
            yield held, until
            held = reader.read(_columns(frame), frame.height)
            read = bisect_right(ends, rows) if is_counted and ends[-1] else 0
            until = stretch[read - 1][1] if read else MINUS_INFINITY
        yield held, stretch[-1][1]


def _is_counted(source: FileSource) -> bool:
    """Say whether rows tell how much has been read: parts are counted in rows, and all are kept."""
    return source.predicate is None and UNITS[source.format] == "rows"


def _read_ahead(source: FileSource, parts: Sequence[FilePart]) -> Iterator[tuple[FilePart, Iterator[pl.DataFrame]]]:
    """Yield each part with its rows, which are to be taken before the next; that one is begun before they end."""
    begun: Iterator[pl.DataFrame] | None = None
    is_counted = _is_counted(source)

    def beginning(
        frames: Iterator[pl.DataFrame], part: FilePart, following: Sequence[FilePart]
    ) -> Iterator[pl.DataFrame]:
        nonlocal begun
        left = part.size if is_counted else None
        for frame in frames:
            left = None if left is None else left - frame.height
            if begun is None and following and (left is None or left <= AHEAD_ROWS):
                begun = frames_of(source, following[0])
            yield frame

    for number, part in enumerate(parts, start=1):
        frames, begun = begun or frames_of(source, part), None
        yield part, beginning(frames, part, parts[number : number + 1])


def _stretches(pieces: Sequence[tuple[FilePart, int]], *, is_counted: bool) -> Iterator[Sequence[tuple[FilePart, int]]]:
    """Yield pieces that are read at once, as this takes a third less: neighbours in a file and in time.

    Where the number of rows does not tell which piece they are of (`is_counted`), each is read for itself.
    """
    begin = 0
    for number in range(1, len(pieces) + 1):
        is_next = is_counted and number < len(pieces) and pieces[number - 1][0].is_followed_by(pieces[number][0])
        if not is_next:
            yield pieces[begin:number]
            begin = number


def _begin(reader: RowReader, source: FileSource, part: FilePart) -> None:
    """Let errors say where in the file a row stands."""
    unit = UNITS[source.format]
    in_rows = part.first == 0 or unit == "rows"
    place = _shown_place(source, part)
    reader.label = place if in_rows else f"{place}, {unit} from {part.first} on"
    reader.first_row = part.first if in_rows else 0


def _shown_place(source: FileSource, part: FilePart) -> str:
    return part.path if source.names_files else source.label


def pieces_of(source: FileSource) -> list[FilePart]:
    """Return what to read one after the other: by earliest time, or as the files stand where order is promised."""
    groups_of = cache(lambda path: row_groups(path, source, ()))  # many parts may be of one file
    pieces = [piece for part in parts_of(source) for piece in _pieces_of_part(part, source, groups_of)]
    if source.promises.sorted_by or source.promises.packed:
        return pieces
    return sorted(pieces, key=lambda piece: piece.low)


def parts_of(source: FileSource) -> Sequence[FilePart]:
    """Return the parts that the source reads, as they stand."""
    return [FilePart(path) for path in paths_to_read(source)] if source.parts is None else source.parts


def _pieces_of_part(
    part: FilePart, source: FileSource, groups_of: Callable[[str], list[RowGroups] | None]
) -> list[FilePart]:
    if source.format != "parquet" or (part.size is not None and part.size <= PIECE_ROWS):
        return [part]
    groups = groups_of(part.path)
    if groups is None or (groups and all(group.low == MINUS_INFINITY for group in groups)):
        return [part]
    end = part.first + part.size if part.size is not None else None
    mine = [group for group in groups if group.first >= part.first and (end is None or group.first < end)]
    return [FilePart(part.path, piece.first, piece.rows, piece.low) for piece in joined_groups(mine, PIECE_ROWS)]


def frames_of(source: FileSource, part: FilePart, *, ahead: bool = True) -> Iterator[pl.DataFrame]:
    """Yield the rows of a part as they stand, in pieces: the columns that are needed, filtered.

    Polars reads parquet `ahead` of who asks, some eight row groups, and begins at once; without it none is read that
    nobody asks for, which takes twice as long.
    """
    can_scan = is_local(part.path) and (part.is_whole or source.format == "parquet")
    if source.format in TYPED and not (ahead and can_scan) and arrow_holds(source.file_columns):
        return _with_place(source, part, _from_arrow(source, part))
    there = known_rows(part.path) if source.format == "parquet" else None
    try:
        require_rows(part, there)
        lazy = _scanned(source, part)
        if source.predicate is not None:
            lazy = lazy.filter(source.predicate.expr)
        size = None if source.format == "parquet" else CHUNK_ROWS
        rows = _rows_to_come(source, part, there)
        frames = whole_frames(lazy.select(source.needed), _types_of(source), size, rows)
    except read_errors() as error:
        raise read_error(source, part, error) from error
    return _with_place(source, part, _together(frames))


def _rows_to_come(source: FileSource, part: FilePart, there: int | None) -> int | None:
    """Return how many rows a part has that are all read, of a file that has so many; None where that is not known."""
    if there is None or source.predicate is not None:
        return None
    return there - part.first if part.size is None else part.size


def _types_of(source: FileSource) -> Schema:
    return Schema({name: source.columns[name] for name in source.needed})


def _with_place(source: FileSource, part: FilePart, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    expected = _types_of(source)
    try:
        for frame in frames:
            # Types that a file stores are read as they are, and it may have been written anew since the query was made.
            if frame.schema != expected:
                raise other_types(Schema(frame.schema), expected, part.path, source.format)
            yield frame
    except read_errors() as error:
        raise read_error(source, part, error) from error


def _together(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames, small ones in one."""
    held: list[pl.DataFrame] = []
    rows = 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows >= CHUNK_ROWS // 2:
            yield held[0] if len(held) == 1 else pl.concat(held, rechunk=False)
            held, rows = [], 0
    if held:
        yield held[0] if len(held) == 1 else pl.concat(held, rechunk=False)


def _scanned(source: FileSource, part: FilePart) -> pl.LazyFrame:
    if part.is_whole:
        return file_rows(source, part.path)
    if source.format in TYPED:
        return file_rows(source, part.path).slice(part.first, part.size)
    return file_rows(source, part.path, lines(part, source.format))


def _from_arrow(source: FileSource, part: FilePart) -> Iterator[pl.DataFrame]:
    names = source.needed
    filtered = () if source.predicate is None else source.predicate.roots
    stored = source.file_columns
    read = [name for name in dict.fromkeys((*names, *filtered)) if name in stored] or stored.names[:1]
    for frame in arrow_frames(part, source.format, stored, read, CHUNK_ROWS):
        whole = with_folder_columns(frame, source, part.path)
        kept = whole if source.predicate is None else whole.filter(source.predicate.expr)
        yield kept if kept.columns == list(names) else kept.select(names)


def read_error(source: FileSource, piece: FilePart, error: Exception) -> InputError:
    changed = changed_type(source.file_columns, piece.path, source.format)
    if changed is not None and source.format in TYPED:  # in the others types are guessed from some values
        return changed
    by_filter = source.predicate is not None and not isinstance(error, OSError)
    if by_filter and (failed := _failed_at(source, piece)) is not None:
        place, row = _shown_place(source, piece), "" if not failed else f", for the row {failed}"
        return InputError(
            f"where: the condition {source.predicate} failed on the rows of {place!r}: {first_line(error)}{row}",
            "check the values; .cast(…, strict=False) gives null instead of an error.",
        )
    return unreadable(piece.path, source.format, error) if changed is None else changed


def _failed_at(source: FileSource, piece: FilePart) -> dict[str, Any] | None:
    """Return the row at which the filter fails, empty when none fails by itself; None when rows cannot be read."""
    assert source.predicate is not None
    condition = source.predicate.expr
    try:
        for frame in whole_frames(file_rows(source, piece.path), source.columns, CHUNK_ROWS):
            found = first_failing(frame, lambda rows: rows.filter(condition))
            if found is not None:
                return frame.row(found[0], named=True)
    except read_errors():
        return None
    return {}


def _columns(frame: pl.DataFrame) -> dict[str, pl.Series]:
    return {series.name: series.rechunk() for series in frame.get_columns()}
