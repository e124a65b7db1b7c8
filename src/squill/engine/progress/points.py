"""At which progress points rows are there: what each assignment means, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Int64s
from squill.engine.columns import as_int64, valid_of
from squill.engine.hashing import hash_columns
from squill.engine.progress.round_robin import fraction_steps, round_robin
from squill.errors import InputError, InternalError
from squill.plan.assignment import (
    STEP,
    Assignment,
    AtStart,
    Columns,
    Exponential,
    Fractions,
    Hashed,
    Rows,
    Stratified,
)
from squill.plan.nodes.progress import NumberedPart, ProgressSource
from squill.time import INFINITY

__all__ = ["Piece", "coarsened", "points_of"]


class Piece:
    """Neighbouring rows of one split: `size` of them from row `first` on, with the input's own columns.

    ``steps``  the first points of rows that are stored in the order of these, where no column has them.
    ``where``  whose rows they are, for errors; those of the source unless told.
    """

    def __init__(
        self,
        source: ProgressSource,
        part: NumberedPart,
        first: int,
        size: int,
        columns: Mapping[str, pl.Series],
        steps: Int64s | None = None,
        where: str | None = None,
    ) -> None:
        self.source = source
        self.part = part
        self.first = first
        self.size = size
        self.columns = columns
        self.steps = steps
        self.where = where or f"input {source.label!r}"

    @property
    def rows(self) -> Int64s:
        """The rows' places in their split."""
        return np.arange(self.first, self.first + self.size)

    @property
    def numbers(self) -> Int64s:
        """The rows' numbers in the input: round robin over its splits; with gaps where nobody knows their lengths."""
        if self.source.lengths:
            return round_robin(self.source.lengths).numbers(self.part.split, self.rows)
        return self.rows * self.source.splits + self.part.split

    def shown(self, row: int) -> str:
        values = {name: series[row] for name, series in self.columns.items()}
        return f"row {self.part.offset + self.first + row}: {values}"


def points_of(piece: Piece) -> tuple[Int64s, Int64s | None]:
    """Return the first progress point of each row and its end, infinity for none; None where no row ends."""
    source = piece.source
    if piece.steps is not None:
        starts = piece.steps
    elif source.in_order:
        starts = as_int64(piece.columns[STEP])[0]
    else:
        starts = _FIRST[type(source.assignment)](source.assignment, piece)
    ends = _ends(source.assignment, piece, starts) if isinstance(source.assignment, Columns) else None
    coarse_ends = None if ends is None else coarsened(ends, source.coarsen, is_end=True)
    return coarsened(starts, source.coarsen, is_end=False), coarse_ends


def coarsened(points: Int64s, by: int, *, is_end: bool) -> Int64s:
    """Return multiples of `by`: starts floored, ends raised; an end too large for one stays, as it is never reached."""
    if by == 1:
        return points
    if not is_end:
        return points // by * by
    return np.where((points == INFINITY) | (points > INFINITY - by), points, points + -points % by)


def _rows(assignment: Rows, piece: Piece) -> Int64s:
    return piece.numbers // assignment.k


def _fractions(assignment: Fractions, piece: Piece) -> Int64s:
    length = piece.part.length
    if length is None:
        raise InternalError(f"nobody knows how many rows split {piece.part.split} has")
    return fraction_steps(piece.rows, length, assignment.n, piece.part.split, piece.source.splits)


def _exponential(assignment: Exponential, piece: Piece) -> Int64s:
    last = (piece.first + piece.size) * piece.source.splits
    return np.searchsorted(_bounds(assignment, last.bit_length()), piece.numbers, side="right").astype(np.int64)


@lru_cache(maxsize=16)
def _bounds(assignment: Exponential, bits: int) -> Int64s:
    """Return the row numbers at which the steps end, up to the first beyond so many bits."""
    bounds: list[int] = []
    total, size = 0, float(assignment.first)
    while not bounds or total < 1 << bits:
        total += int(size)
        bounds.append(min(total, INFINITY))
        size = min(size * assignment.ratio, 2.0**62)
    return np.array(bounds)


def _hashed(assignment: Hashed, piece: Piece) -> Int64s:
    """Return the steps of hashes: other bits than those that choose a shard, or a step would be all on one."""
    hashes = hash_columns([piece.columns[name] for name in assignment.names])
    mixed = (hashes ^ (hashes >> np.uint64(32))) * np.uint64(0x9FB21C651E98DF25)
    return ((mixed >> np.uint64(33)) * np.uint64(assignment.steps) >> np.uint64(31)).astype(np.int64)


def _stratified(_assignment: Stratified, piece: Piece) -> Int64s:
    if piece.source.given is None:
        raise InternalError("the strata were not counted")
    steps: Int64s = piece.source.given[piece.part.split][piece.first : piece.first + piece.size]
    return steps


def _at_start(_assignment: AtStart, piece: Piece) -> Int64s:
    return np.zeros(piece.size, np.int64)


def _columns(assignment: Columns, piece: Piece) -> Int64s:
    series = piece.columns[assignment.start]
    if series.null_count():
        row = int(np.argmin(valid_of(series)))
        raise _bad(piece, f"the progress {assignment.start!r} is null in {piece.shown(row)}")
    points = as_int64(series)[0]
    # A number that needs 64 bits without a sign is negative here, and beyond all points.
    wrong = (points < 0) | (points == INFINITY)
    if wrong.any():
        row = int(np.argmax(wrong))
        found = "negative" if series[row] < 0 else "beyond the last point"
        raise _bad(piece, f"the progress {assignment.start!r} is {found} in {piece.shown(row)}")
    return points


def _bad(piece: Piece, what: str) -> InputError:
    return InputError(f"{piece.where}: {what}", "progress points are whole numbers from 0 to 2^63 − 2; repair the row.")


def _ends(assignment: Columns, piece: Piece, starts: Int64s) -> Int64s | None:
    if assignment.end is None:
        return None
    series = piece.columns[assignment.end]
    if isinstance(series.dtype, pl.Null):
        return None
    ends, valid = as_int64(series)
    ends = np.where(valid.view(np.bool_), ends, INFINITY)
    if isinstance(series.dtype, pl.UInt64):
        ends = np.where(ends < 0, INFINITY, ends)
    backwards = ends < starts
    if backwards.any():
        row = int(np.argmax(backwards))
        raise InputError(
            f"{piece.where}: the progress of {piece.shown(row)} ends before it starts",
            "swap the columns, or repair the row; a row whose end is its start never takes part.",
        )
    return ends


_FIRST: dict[type[Assignment], Callable[[Any, Piece], npt.NDArray[np.int64]]] = {
    AtStart: _at_start,
    Columns: _columns,
    Exponential: _exponential,
    Fractions: _fractions,
    Hashed: _hashed,
    Rows: _rows,
    Stratified: _stratified,
}
