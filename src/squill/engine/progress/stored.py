"""Rows of a dataset that is stored in the order of progress: read as far as somebody asks, a few row groups at a time.

The ends of the files say how many rows come and go at which point: as rows are in the order of their first points,
that says the point of each. Pieces of files are read by their first step, the next one while the rows of the last are
worked on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from squill.engine.batch import Batch, Int64s, repeated
from squill.engine.egress_progress import COUNTS
from squill.engine.files import frames_of, read_error
from squill.engine.ingress import Arrival
from squill.engine.progress import arrivals
from squill.engine.progress.arrivals import in_steps, merged_steps
from squill.engine.progress.points import Piece, coarsened, points_of
from squill.engine.progress.splits import numbered_splits
from squill.engine.progress.tally import Tally
from squill.engine.progress.timed import TimedRows
from squill.engine.row_filter import RowFilter
from squill.engine.time_sorter import earliest_later
from squill.errors import SourceReadError
from squill.plan.build.locations import open_file, read_errors
from squill.plan.nodes import FilePart, FileSource
from squill.plan.nodes.progress import NumberedPart, ProgressSource
from squill.time import INFINITY

__all__ = ["read_rows", "stored_batches", "stored_counts"]

PIECE_ROWS = 1 << 22
"""So many rows are read at a time: to begin a reading costs as much as some 100,000 rows of a column, and row groups
that are read together are decoded at once."""


def stored_batches(source: ProgressSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the rows in the order of their first progress point, and how far that has come."""
    files = {path: _FileEnd(_files(source), path) for path in _files(source).paths}
    pieces = [piece for piece in _pieces(source, files) if _last_point(source, files, piece[1]) >= source.wanted]
    pieces.sort(key=lambda piece: piece[0])
    bounds = earliest_later([low for low, _ in pieces])
    held: list[Batch] = []
    rows_of = _Rows(source, files, batch_rows)
    for number, batches in enumerate(_read_ahead(rows_of, [part for _, part in pieces])):
        is_last = number + 1 == len(pieces)
        until = INFINITY if is_last else bounds[number] // source.coarsen * source.coarsen
        held += batches
        ready, held = merged_steps(held, until)
        for batch in ready:
            yield from in_steps(batch, batch_rows)
        if not is_last:
            yield Arrival(None, until)


class _Rows:
    """From a piece of a file to rows with their progress for time, as many as the filter keeps.

    Batches are of one step each, where steps are large: so they need not be cut any more, and times are not made anew.
    """

    def __init__(self, source: ProgressSource, files: dict[str, _FileEnd], batch_rows: int) -> None:
        inner = _files(source)
        self._source = source
        self._ends = files
        self._batch_rows = batch_rows
        self._keep = None if inner.predicate is None else RowFilter(inner.predicate, None)
        self._reading = replace(inner, predicate=None, parts=None, read=_wanted(source))
        timed = replace(self._reading, predicate=inner.predicate)
        self._timed = TimedRows(timed, tuple(source.schema)) if source.is_timed else None

    def __call__(self, part: NumberedPart) -> list[Batch]:
        batches: list[Batch] = []
        first = 0
        end = self._ends[part.path or ""]
        for frame in read_rows(self._reading, part):
            columns = {series.name: series.rechunk() for series in frame.get_columns()}
            for low, high in end.cuts(part.offset + first, frame.height, self._batch_rows):
                steps = end.steps(part.offset + first + low, high - low)
                cut = {name: series.slice(low, high - low) for name, series in columns.items()}
                batches.append(self._rows(Piece(self._source, part, first + low, high - low, cut, steps)))
            first += frame.height
        return [batch for batch in batches if len(batch)]

    def _rows(self, piece: Piece) -> Batch:
        columns = dict(piece.columns)
        starts, ends = points_of(piece)
        if self._timed is not None:
            return self._timed(piece, starts)
        batch = Batch(starts, self._source.lasting if ends is None else ends, columns)
        if self._keep is not None:
            batch = self._keep(batch)
        if ends is not None:
            batch = batch.filter(batch.other > batch.sync)
        rows = batch.with_columns({name: batch.columns[name] for name in self._source.schema})
        rows.is_ordered = True
        return rows


def _files(source: ProgressSource) -> FileSource:
    assert isinstance(source.source, FileSource)
    return source.source


class _FileEnd:
    """What a file says at its end: how many rows come and go at which point."""

    def __init__(self, source: FileSource, path: str) -> None:
        try:
            with open_file(path) as file:
                metadata = pq.read_metadata(file)
        except read_errors() as error:
            raise read_error(source, FilePart(path), error) from error
        text = (metadata.metadata or {}).get(COUNTS.encode())
        if text is None:
            raise SourceReadError(
                f"{path!r} does not say which rows come when, but its dataset says that it is in the order of progress",
                "write the dataset again.",
            )
        counts = json.loads(text)
        self.come = np.array(counts["come"], np.int64).reshape(-1, 2)
        self.go = np.array(counts["go"], np.int64).reshape(-1, 2)
        self._ends = np.cumsum(self.come[:, 1])

    def steps(self, first: int, rows: int) -> Int64s:
        """Return the points at which so many rows from this one on come."""
        low, high = np.searchsorted(self._ends, [first, first + rows - 1], side="right").tolist()
        if low == high:
            return repeated(int(self.come[low, 0]), rows)
        ends = np.minimum(self._ends[low : high + 1], first + rows)
        return np.repeat(self.come[low : high + 1, 0], np.diff(ends, prepend=first))

    def cuts(self, first: int, rows: int, most: int) -> Iterator[tuple[int, int]]:
        """Yield from where to where so many rows from this one on are of one step, `most` at a time.

        Where steps are small all of the rows are one piece.
        """
        low, high = np.searchsorted(self._ends, [first, first + rows - 1], side="right").tolist()
        if rows < arrivals.SMALL_STEP * (high - low + 1):
            yield 0, rows
            return
        begin = 0
        for end in [*(self._ends[low:high] - first).tolist(), rows]:
            for cut in range(begin, end, most):
                yield cut, min(cut + most, end)
            begin = end

    def step(self, row: int) -> int:
        """Return the point at which a row comes."""
        return int(self.steps(row, 1)[0])


def _pieces(source: ProgressSource, files: dict[str, _FileEnd]) -> Iterator[tuple[int, NumberedPart]]:
    """Yield neighbouring row groups, and the first step in each: few at first, so that an answer is soon there."""
    parts = numbered_splits(_files(source), source.assignment) if source.parts is None else source.parts
    joined: NumberedPart | None = None
    wanted = 1
    for part in parts:
        rows = part.rows or 0
        if joined is not None and joined.path == part.path and joined.offset + (joined.rows or 0) == part.offset:
            total = (joined.rows or 0) + rows
            if total <= min(wanted, PIECE_ROWS):
                joined = replace(joined, rows=total)
                continue
            wanted = 2 * (joined.rows or 0)
        else:
            wanted = 1
        if joined is not None:
            yield files[joined.path or ""].step(joined.offset), joined
        joined = part
    if joined is not None:
        yield files[joined.path or ""].step(joined.offset), joined


def _last_point(source: ProgressSource, files: dict[str, _FileEnd], part: NumberedPart) -> int:
    """Return the point at which the last row of a piece comes."""
    step = files[part.path or ""].step(part.offset + (part.rows or 1) - 1)
    return step // source.coarsen * source.coarsen


def _read_ahead(rows_of: _Rows, parts: Sequence[NumberedPart]) -> Iterator[list[Batch]]:
    """Yield the rows of pieces; the next one is read, and filtered, while somebody works on the last."""
    with ThreadPoolExecutor(1, "squill-read") as reader:
        coming: Future[list[Batch]] | None = None
        try:
            for number, part in enumerate(parts):
                batches = rows_of(part) if coming is None else coming.result()
                is_last = number + 1 == len(parts)
                coming = None if is_last else reader.submit(rows_of, parts[number + 1])
                yield batches
        finally:
            if coming is not None:
                coming.cancel()


def read_rows(source: FileSource, part: NumberedPart) -> list[pl.DataFrame]:
    """Read some row groups, each of which comes by itself unless it is small."""
    return list(frames_of(source, FilePart(part.path or "", part.offset, part.rows)))


def _wanted(source: ProgressSource) -> tuple[str, ...]:
    """Return the columns that are read; none is needed to know when a row comes, but perhaps for when it goes."""
    inner = _files(source)
    ends = source.assignment.columns[1:] if source.assignment.has_ends else ()
    roots = () if inner.predicate is None else inner.predicate.roots
    times = () if inner.lifetime is None or not source.is_timed else inner.lifetime.roots
    wanted = {*source.schema, *times, *ends, *roots}
    return tuple(name for name in source.columns if name in wanted)


def stored_counts(source: ProgressSource) -> Tally:
    """Return how many rows come and go at which point, from the ends of the files; no row is read for it."""
    tally = Tally(readers=1)
    for path in _files(source).paths:
        end = _FileEnd(_files(source), path)
        for counts, sign in ((end.come, 1), (end.go, -1)):
            points = coarsened(counts[:, 0], source.coarsen, is_end=sign < 0).tolist()
            changes = (sign * counts[:, 1]).tolist()
            tally.add_counts(sum(changes) if sign > 0 else 0, zip(points, changes, strict=True))
    tally.finish()
    return tally
