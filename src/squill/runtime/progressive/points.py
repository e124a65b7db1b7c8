"""The progress points of a query: those of all its inputs together."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.columns import framed
from squill.engine.progress.tally import Tally
from squill.plan.assignment import AtStart
from squill.plan.nodes.progress import ProgressSource
from squill.runtime.progressive.answers import Step
from squill.runtime.progressive.store import DIFF

__all__ = ["ChangesByPoint", "Counted", "change_rows"]


class Counted:
    """The tallies of all inputs: which points there are, and which part of the rows is there at each."""

    def __init__(self, sources: Sequence[ProgressSource]) -> None:
        self._sources = sources
        moving = [source for source in sources if not isinstance(source.assignment, AtStart)]
        self._counting: list[Tally] = [source.tally for source in moving or sources]

    @property
    def is_complete(self) -> bool:
        return all(source.tally.is_complete for source in self._sources)

    def points(self) -> Iterator[int]:
        """Yield all points, in order: those of steps, also when no row comes; 0 when there is nothing at all."""
        # One by one: there may be many more than anybody will look at.
        merged = heapq.merge(*(_points(source) for source in self._sources))
        first = True
        for point, _ in groupby(merged):
            first = False
            yield point
        if first:
            yield 0

    def fraction(self, point: int) -> float:
        rows = sum(tally.rows for tally in self._counting)
        return sum(tally.alive(point) for tally in self._counting) / rows if rows else 1.0


def _points(source: ProgressSource) -> Iterable[int]:
    seen: list[int] = source.tally.points().tolist()
    if source.assignment.leaves_gaps:
        return seen
    steps = source.assignment.least_steps
    last = max(seen[-1] if seen else -1, (steps - 1) // source.coarsen * source.coarsen if steps else -1)
    return range(0, last + 1, source.coarsen)


class ChangesByPoint:
    """Changes that have come but whose point is not over, and the points still to be answered."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._points: Iterator[int] | None = None
        self._next: int | None = None
        self._waiting: dict[int, list[pl.DataFrame]] = {}
        self._is_again = False
        self._has_answered = False

    def add(self, rows: Batch | None) -> None:
        """Take changes as (point, diff, payload), in the order of points."""
        if rows is None:
            return
        borders = [0, *(np.flatnonzero(rows.sync[1:] != rows.sync[:-1]) + 1).tolist(), len(rows)]
        frame = change_rows(rows)
        for low, high in pairwise(borders):
            self._waiting.setdefault(int(rows.sync[low]), []).append(frame.slice(low, high - low))

    def start_over(self) -> None:
        """Forget what waits: all changes come again, those of points that were answered too."""
        self._waiting = {}
        self._is_again = self._has_answered

    def until(self, clock: int) -> Iterator[Step]:
        """Yield the points that are over once nothing below `clock` follows."""
        if self._points is None:
            if not self._counted.is_complete:
                return
            self._points = self._counted.points()
            self._next = next(self._points)
        while self._next is not None and self._next < clock:
            point, self._next = self._next, next(self._points, None)
            again, self._is_again, self._has_answered = self._is_again, False, True
            fraction = self._counted.fraction(point)
            yield Step(
                point=point,
                changes=self._up_to(point) if again else self._waiting.pop(point, []),
                fraction=fraction,
                is_final=self._next is None,
                from_nothing=again,
            )

    def _up_to(self, point: int) -> list[pl.DataFrame]:
        past = sorted(other for other in self._waiting if other <= point)
        return [frame for other in past for frame in self._waiting.pop(other)]


def change_rows(rows: Batch) -> pl.DataFrame:
    """Return the payload of changes with their diffs."""
    return framed([*rows.columns.values(), pl.Series(DIFF, rows.other)])
