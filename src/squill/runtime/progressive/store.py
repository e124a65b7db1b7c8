"""The rows of all answers so far, as far as somebody can still ask for them.

Changes are appended as they come. An answer is the sum of the changes up to its progress point; what no answer that
is still referenced can tell apart is summed up and kept as one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from squill.errors import InternalError
from squill.plan.schema import Schema

if TYPE_CHECKING:
    from squill.runtime.progressive.early import EarlyAnswer

__all__ = ["DIFF", "AnswerStore", "in_order", "summed"]

DIFF = "__squill_diff__"
ENOUGH_ROWS = 262_144
"""Fewer changes are not worth summing up while nobody asks for an answer."""


def summed(changes: Sequence[pl.DataFrame], columns: Sequence[str]) -> pl.DataFrame:
    """Return each row once with the sum of its diffs, those of none left out."""
    together = pl.concat(changes)
    total = pl.col(DIFF).sum()
    counted = together.group_by(columns).agg(total) if columns else together.select(total)
    return counted.filter(pl.col(DIFF) != 0)


Late = Callable[[pl.DataFrame, int], pl.DataFrame]


class AnswerStore:
    """Changes by progress point, the earliest ones summed up. Answers may be asked on any thread.

    With `late` it makes answers of the rows that are summed up, and of their progress point.
    """

    def __init__(self, schema: Schema, late: Late | None = None) -> None:
        self._late = late
        self._columns = list(schema)
        self._empty = schema.empty_frame().with_columns(pl.Series(DIFF, [], pl.Int64))
        self._base = self._empty
        self._log: list[tuple[int, pl.DataFrame]] = []
        self._log_rows = 0
        self._answers: weakref.WeakSet[EarlyAnswer] = weakref.WeakSet()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many rows are held."""
        return self._base.height + self._log_rows

    def add(self, answer: EarlyAnswer, changes: Sequence[pl.DataFrame]) -> None:
        """Take what an answer changes; it comes after all that were added."""
        with self._lock:
            self._answers.add(answer)
            for frame in changes:
                self._log.append((answer.progress, frame))
                self._log_rows += frame.height
            if self._log_rows > 2 * self._base.height + ENOUGH_ROWS:
                self._sum_up()

    def at(self, progress: int) -> pl.DataFrame:
        """Return the rows of the answer at a progress point, in the order of their columns."""
        return in_order(self._shown(self._there(progress), progress))

    def _there(self, progress: int) -> pl.DataFrame:
        with self._lock:
            if self._earliest() >= progress:
                self._sum_up()
            later = [frame for point, frame in self._log if point <= progress]
            return summed([self._base, *later], self._columns) if later else self._base

    def _shown(self, there: pl.DataFrame, progress: int) -> pl.DataFrame:
        rows = _repeated(there)
        return rows if self._late is None else self._late(rows, progress)

    def changes(self, frames: Sequence[pl.DataFrame], progress: int, before: int | None) -> pl.DataFrame:
        """Return the changes since the answer at `before`, with what came and went again left out."""
        net = summed([self._empty, *frames], self._columns)
        if self._late is None:
            return net
        there = self._there(progress)
        shown = [self._shown(there, progress).with_columns(pl.lit(1, pl.Int64).alias(DIFF))]
        if before is not None:
            past = summed([there, net.with_columns(-pl.col(DIFF))], self._columns)
            shown.append(self._shown(past, before).with_columns(pl.lit(-1, pl.Int64).alias(DIFF)))
        return summed(shown, shown[0].columns[:-1])

    def removals(self) -> list[pl.DataFrame]:
        """Return the changes after which nothing of all that was added is there."""
        with self._lock:
            frames = [self._base, *(frame for _, frame in self._log)]
        return [frame.with_columns(-pl.col(DIFF)) for frame in frames if frame.height]

    def _earliest(self) -> int:
        """Return the least progress point that somebody may ask for."""
        last = self._log[-1][0] if self._log else -1
        return min((answer.progress for answer in self._answers), default=last)

    def _sum_up(self) -> None:
        until = self._earliest()
        past = [frame for point, frame in self._log if point <= until]
        if past:
            self._base = summed([self._base, *past], self._columns)
            self._log = [(point, frame) for point, frame in self._log if point > until]
            self._log_rows = sum(frame.height for _, frame in self._log)


def _repeated(rows: pl.DataFrame) -> pl.DataFrame:
    """Return every row as often as it is there."""
    counts = rows[DIFF].to_numpy()
    if (counts < 0).any():
        raise InternalError("an early answer loses rows that it does not have")
    plain = rows.drop(DIFF)
    if not plain.width:
        return pl.DataFrame(height=int(counts.sum()))
    return plain if (counts == 1).all() else plain[np.repeat(np.arange(len(counts)), counts)]


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in the order of their columns, where these have one."""
    if not rows.width or any(isinstance(dtype, pl.Object) for dtype in rows.dtypes):
        return rows
    return rows.sort(rows.columns, nulls_last=False)
