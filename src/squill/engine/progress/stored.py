"""Rows of a dataset that is stored in the order of progress: read as far as somebody asks, file beside file.

The ends of the files say how many rows come and go at which point: as rows are in the order of their first points,
that says the point of each, and the next one of those that have not been read. Always the file that is furthest
behind is read on.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from squill.engine.batch import Batch, Instant, Int64s
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
from squill.errors import SourceReadError
from squill.plan.build.locations import open_file, read_errors
from squill.plan.nodes import FilePart, FileSource
from squill.plan.nodes.progress import NumberedPart, ProgressSource
from squill.time import INFINITY

__all__ = ["read_rows", "stored_batches", "stored_counts"]

Item = TypeVar("Item")

FILES_AHEAD = 8
"""So many files, which are all read beside each other, have their rows read ahead."""
FRAMES_AHEAD = 3
"""So many pieces are made ready, in the order in which they are asked for, while others are worked on; at first fewer,
as who soon stops should have read little."""


def stored_batches(source: ProgressSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the rows in the order of their first progress point, and how far that has come."""
    held: list[Batch] = []
    for batches, reached in _made_ready(_read_in_turn(_file_readers(source, batch_rows))):
        until = reached if reached == INFINITY else reached // source.coarsen * source.coarsen
        ready, held = merged_steps([*held, *batches], until)
        for batch in ready:
            yield from in_steps(batch, batch_rows)
        if until < INFINITY:
            yield Arrival(None, until)


def _read_in_turn(files: Sequence[_FileReader]) -> Generator[tuple[list[Batch], int], None, None]:
    """Yield some rows of the file that is furthest behind, and the first point that may follow."""
    try:
        while files:
            behind = min(files, key=lambda file: file.reached)
            if behind.reached == INFINITY:
                return
            batches = behind.read()
            yield batches, min(file.reached for file in files)
    finally:
        for file in files:
            file.close()


def _made_ready(items: Generator[Item, None, None]) -> Iterator[Item]:
    """Yield the items; the next ones are made on a thread while somebody works on the last."""
    coming: deque[Future[Item | None]] = deque()
    try:
        with ThreadPoolExecutor(1, "squill-read") as reader:
            try:
                coming.append(reader.submit(next, items, None))
                for asked in count():
                    item = coming.popleft().result()
                    if item is None:
                        return
                    while len(coming) < min(1 + asked // 2, FRAMES_AHEAD):
                        coming.append(reader.submit(next, items, None))
                    yield item
            finally:
                for future in coming:
                    future.cancel()
    finally:
        items.close()  # the thread is over by now


class _Rows:
    """From a piece of a file to rows with their progress for time, as many as the filter keeps.

    Batches are of one step each, where steps are large: so they need not be cut any more, and times are not made anew.
    """

    def __init__(self, source: ProgressSource, files: dict[str, _FileEnd], batch_rows: int) -> None:
        inner = _files(source)
        self._source = source
        self._ends = files
        self._batch_rows = batch_rows
        self._reads_ahead = len(files) <= FILES_AHEAD
        self._payload = tuple(source.schema)
        self._keep = None if inner.predicate is None else RowFilter(inner.predicate, None, self._payload)
        self._reading = replace(inner, predicate=None, parts=None, read=_wanted(source))
        timed = replace(self._reading, predicate=inner.predicate)
        self._timed = TimedRows(timed, tuple(source.schema)) if source.is_timed else None
        self._is_plain = self._timed is None and not source.assignment.has_ends

    def __call__(self, part: NumberedPart) -> Iterator[tuple[list[Batch], int]]:
        """Yield rows as they come, and how many of the part's have been read with them."""
        read = 0
        end = self._ends[part.path or ""]
        for frame in read_rows(self._reading, part, ahead=self._reads_ahead):
            columns = {series.name: series.rechunk() for series in frame.get_columns()}
            batches: list[Batch] = []
            for low, high in end.cuts(part.offset + read, frame.height, self._batch_rows):
                steps = end.steps(part.offset + read + low, high - low)
                cut = {name: series.slice(low, high - low) for name, series in columns.items()}
                batches.append(self._rows(Piece(self._source, part, read + low, high - low, cut), steps))
            read += frame.height
            yield [batch for batch in batches if len(batch)], read

    def _rows(self, piece: Piece, steps: Int64s | Instant) -> Batch:
        if isinstance(steps, Instant) and self._is_plain:
            first = steps.time // self._source.coarsen * self._source.coarsen
            batch, ends = Batch(steps._replace(time=first), self._source.lasting, dict(piece.columns)), None
        else:
            piece.steps = steps.array() if isinstance(steps, Instant) else steps
            starts, ends = points_of(piece)
            if self._timed is not None:
                return self._timed(piece, starts)
            batch = Batch(starts, self._source.lasting if ends is None else ends, dict(piece.columns))
        batch.is_ordered = True
        if self._keep is not None:
            batch = self._keep(batch)
        if ends is not None:
            batch = batch.filter(batch.other > batch.sync)
        rows = batch.with_columns({name: batch.columns[name] for name in self._payload})
        rows.is_ordered = True
        return rows


class _FileReader:
    """The rows of one file, from its first piece on.

    ``reached``  the first point of what has not been read yet; infinity at the end.
    """

    def __init__(self, rows_of: _Rows, end: _FileEnd, parts: Sequence[NumberedPart]) -> None:
        self._end = end
        self._parts = parts
        self.reached = end.step(parts[0].offset)
        self._batches = self._read(rows_of)

    def read(self) -> list[Batch]:
        """Return the next rows, perhaps none, and move on."""
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()

    def _read(self, rows_of: _Rows) -> Generator[list[Batch], None, None]:
        for part, following in zip(self._parts, [*self._parts[1:], None], strict=True):
            for batches, read in rows_of(part):
                if read < (part.rows or 0):
                    self.reached = self._end.step(part.offset + read)
                else:
                    self.reached = INFINITY if following is None else self._end.step(following.offset)
                yield batches


def _file_readers(source: ProgressSource, batch_rows: int) -> list[_FileReader]:
    ends = {path: _FileEnd(_files(source), path) for path in _files(source).paths}
    rows_of = _Rows(source, ends, batch_rows)
    by_path: dict[str, list[NumberedPart]] = {}
    for part in numbered_splits(_files(source), source.assignment) if source.parts is None else source.parts:
        if _last_point(source, ends, part) >= source.wanted:
            by_path.setdefault(part.path or "", []).append(part)
    return [_FileReader(rows_of, ends[path], _pieces(parts)) for path, parts in by_path.items()]


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

    def steps(self, first: int, rows: int) -> Int64s | Instant:
        """Return the points at which so many rows from this one on come."""
        low, high = np.searchsorted(self._ends, [first, first + rows - 1], side="right").tolist()
        if low == high:
            return Instant(int(self.come[low, 0]), rows)
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
        return int(self.come[np.searchsorted(self._ends, row, side="right"), 0])


def _pieces(parts: Sequence[NumberedPart]) -> list[NumberedPart]:
    """Return neighbouring row groups of a file as one: few at first, so that who soon stops has little of them read.

    To begin a reading costs as much as some 100,000 rows of a column.
    """
    pieces: list[NumberedPart] = []
    rows, wanted = 0, 0
    for part in parts:
        size = part.rows or 0
        is_next = bool(pieces) and pieces[-1].offset + rows == part.offset
        if is_next and rows + size <= wanted:
            rows += size
            continue
        wanted = 2 * rows if is_next else 0
        _end_at(pieces, rows)
        pieces.append(part)
        rows = size
    _end_at(pieces, rows)
    return pieces


def _end_at(pieces: list[NumberedPart], rows: int) -> None:
    """Let the last piece have so many rows."""
    if pieces and (pieces[-1].rows or 0) != rows:
        pieces[-1] = replace(pieces[-1], rows=rows)


def _last_point(source: ProgressSource, files: dict[str, _FileEnd], part: NumberedPart) -> int:
    """Return the point at which the last row of a piece comes."""
    step = files[part.path or ""].step(part.offset + (part.rows or 1) - 1)
    return step // source.coarsen * source.coarsen


def read_rows(source: FileSource, part: NumberedPart, *, ahead: bool) -> Iterator[pl.DataFrame]:
    """Yield the rows of some row groups as they are asked for, or `ahead` of that."""
    return frames_of(source, FilePart(part.path or "", part.offset, part.rows), ahead=ahead)


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
