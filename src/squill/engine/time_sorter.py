"""Rows in any order, out in time order, in bounded memory: sorted runs on disk, merged.

Rows are kept in memory up to a bound; beyond it they are sorted and written as one run to a temporary file,
which is mapped, not read, when runs are merged. So memory holds the bound and one block per run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.rows_on_disk import RowsOnDisk
from squill.errors import BudgetExceededError
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["MEMORY_BYTES", "TimeSorter", "earliest_later", "in_time_order"]

MEMORY_BYTES = 256 * 1024 * 1024


class Run:
    """Rows in time order, in memory or on disk, and how far they have been taken."""

    def __init__(self, rows: Batch | RowsOnDisk) -> None:
        self.file = rows if isinstance(rows, RowsOnDisk) else None
        self.batch = rows.batch if isinstance(rows, RowsOnDisk) else rows
        self.taken = 0

    def __len__(self) -> int:
        return len(self.batch) - self.taken

    def last_of_block(self, block_rows: int) -> int:
        """The sync of the last row of the next block."""
        return int(self.batch.sync[min(self.taken + block_rows, len(self.batch)) - 1])

    def take_until(self, t: int) -> Batch:
        low = self.taken
        self.taken = max(low, int(np.searchsorted(self.batch.sync, t, side="right")))
        rows = self.batch.slice(low, self.taken)
        return rows if self.file is None else self.file.restored(rows)


class TimeSorter:
    """Takes rows in any order; gives them in time order once nothing earlier can follow.

    Examples
    --------
    >>> sorter = TimeSorter()
    >>> sorter.add(Batch(np.array([3, 1]), np.array([4, 2])))
    >>> sorter.add(Batch(np.array([2, 9]), np.array([3, 10])))
    >>> [batch.sync for batch in sorter.release(3)]
    [array([1, 2, 3])]
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, block_rows: int = DEFAULT_BATCH_ROWS) -> None:
        self._memory_bytes = memory_bytes
        self._block_rows = block_rows
        self._batches: list[Batch] = []
        self._bytes = 0
        self._runs: list[Run] = []
        self._spilled = 0

    def __len__(self) -> int:
        return sum(map(len, self._batches)) + sum(map(len, self._runs))

    @property
    def spilled_runs(self) -> int:
        """How many runs were written to disk so far."""
        return self._spilled

    def add(self, batch: Batch) -> None:
        """Take rows in any order."""
        if len(batch):
            self._batches.append(batch)
            self._bytes += 16 * len(batch) + sum(int(series.estimated_size()) for series in batch.columns.values())
            if self._bytes > self._memory_bytes:
                try:
                    self._spill()
                except OSError as error:
                    raise _no_room(self._memory_bytes, error) from error

    def release(self, until: int) -> Iterator[Batch]:
        """Yield all rows with sync ≤ until, in time order."""
        self._sort_memory()
        while True:
            runs = [run for run in self._runs if len(run) and run.batch.sync[run.taken] <= until]
            if not runs:
                break
            bound = min(until, *(run.last_of_block(self._block_rows) for run in runs), INFINITY)
            yield Batch.concat([run.take_until(bound) for run in runs]).sorted_by_sync()
            self._drop_finished()

    def close(self) -> None:
        """Let go of what was written to disk."""
        self._runs, self._batches = [], []

    def _sort_memory(self) -> None:
        if self._batches:
            in_memory = [run for run in self._runs if run.file is None]
            rest = [run.batch.slice(run.taken, len(run.batch)) for run in in_memory]
            merged = Batch.concat([*rest, *self._batches]).sorted_by_sync()
            self._runs = [run for run in self._runs if run.file is not None]
            self._runs.append(Run(merged))
            self._batches = []

    def _spill(self) -> None:
        self._sort_memory()
        rows = self._runs.pop().batch
        self._runs.append(Run(RowsOnDisk(rows)))
        self._spilled += 1
        self._bytes = 0

    def _drop_finished(self) -> None:
        self._runs = [run for run in self._runs if len(run)]
        if not any(run.file is None for run in self._runs):
            self._bytes = 0


def earliest_later(lows: Sequence[int]) -> list[int]:
    """Return for each piece, given the earliest time in each, the earliest time that a later piece may hold.

    Examples
    --------
    >>> earliest_later([5, 2, 9])[:2]
    [2, 9]
    """
    bounds = [INFINITY] if lows else []
    for low in reversed(lows[1:]):
        bounds.append(min(bounds[-1], low))
    return bounds[::-1]


def in_time_order(pieces: Iterable[tuple[Batch, int]], memory_bytes: int) -> Iterator[Batch]:
    """Yield the rows of pieces in time order, as early as can be; with each comes the earliest time still to come.

    Pieces that are in order and follow each other pass as they are.
    """
    sorter = TimeSorter(memory_bytes)
    try:
        for batch, until in pieces:
            if batch.is_ordered and len(batch) and batch.sync[-1] <= until and not len(sorter):
                yield batch
                continue
            sorter.add(batch)
            if until > MINUS_INFINITY:
                yield from sorter.release(until)
    finally:
        sorter.close()


def _no_room(memory_bytes: int, error: OSError) -> BudgetExceededError:
    return BudgetExceededError(
        f"rows in no order of time take more than {memory_bytes >> 20} MiB, and those beyond cannot be written to the "
        f"temporary folder: {error.strerror or error}",
        "make room there, name another one (the variable TMPDIR), or promise the order that files have: sorted_by=….",
    )
