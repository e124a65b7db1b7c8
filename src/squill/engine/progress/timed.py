"""Rows over time in the order of progress: their lifetimes go along in columns."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from squill.engine.batch import Batch, Int64s, endless
from squill.engine.columns import values_of
from squill.engine.ingress import RowReader
from squill.engine.progress.points import Piece
from squill.engine.row_filter import RowFilter
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.nodes.progress import BEGINS, ENDS

__all__ = ["TimedRows", "carrying", "lasting"]

POINT = "__squill_point__"


class TimedRows:
    """Reads the times off pieces of a source, filters, and gives rows with their progress points for time.

    Points go beside the columns, since rows may be left out on the way. `source` has the filter, and reads the columns
    that `payload` names, those of the times and those that the filter looks at.
    """

    def __init__(self, source: Source, payload: tuple[str, ...]) -> None:
        assert isinstance(source, (FrameSource, FileSource))
        keep = None if source.predicate is None else RowFilter(source.predicate, source.time)
        self._reader = RowReader(source, keep)
        self._payload = tuple(name for name in payload if name not in (BEGINS, ENDS))

    def __call__(self, piece: Piece, points: Int64s) -> Batch:
        if piece.part.path is not None:
            self._reader.label = piece.part.path
        self._reader.skip_to(piece.part.offset + piece.first)
        rows = self._reader.read(piece.columns, piece.size, {POINT: pl.Series(POINT, points)})
        return carrying(rows, values_of(rows.columns[POINT]), self._payload)


def carrying(rows: Batch, points: Int64s, payload: tuple[str, ...]) -> Batch:
    """Return intervals as rows that stay from their points on, with their lifetimes in columns."""
    columns = {name: rows.columns[name] for name in payload}
    columns[BEGINS], columns[ENDS] = pl.Series(BEGINS, rows.sync), pl.Series(ENDS, rows.other)
    return Batch(points, endless(len(rows)), columns)


def lasting(rows: Batch) -> Batch:
    """Return rows that carry their lifetimes as the intervals that they are, in the order of time."""
    columns: Mapping[str, pl.Series] = {name: item for name, item in rows.columns.items() if name not in (BEGINS, ENDS)}
    return Batch(values_of(rows.columns[BEGINS]), values_of(rows.columns[ENDS]), dict(columns)).sorted_by_sync()
