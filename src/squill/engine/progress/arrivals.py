"""Rows in the order of progress, cut into pieces that are worth pushing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from squill.engine.batch import Batch, Int64s
from squill.engine.ingress import Arrival

__all__ = ["in_steps", "merged_steps"]

SMALL_STEP = 4_096
"""Fewer rows than this are not worth a batch of their own, even where a step ends."""


def in_steps(batch: Batch, batch_rows: int) -> Iterator[Arrival]:
    """Yield the batch in pieces of at most `batch_rows`, which end where steps do unless these are small."""
    if len(batch) <= batch_rows and batch.first_sync == batch.last_sync:
        yield Arrival(batch, None)
        return
    ends = np.append(_begins(batch)[1:], len(batch))
    low = 0
    while low < len(batch):
        high = min(low + batch_rows, len(batch))
        # The first end of a step that makes the piece worth pushing.
        end = int(ends[np.searchsorted(ends, min(low + min(SMALL_STEP, batch_rows), len(batch)))])
        high = min(high, end)
        clock = int(batch.sync[high]) if high < len(batch) else None
        yield Arrival(batch.slice(low, high), clock)
        low = high


def merged_steps(runs: Sequence[Batch], until: int) -> tuple[list[Batch], list[Batch]]:
    """Return the rows of ordered runs up to `until` in one order, in some batches, and what is left of the runs.

    Where steps are large the rows of each run stay as they are: those of one step may come in any order.

    >>> import numpy as np
    >>> ready, rest = merged_steps([Batch(np.array([1, 1, 2]), 1), Batch(np.array([1, 3]), 1)], 2)
    >>> [batch.sync.tolist() for batch in ready], [batch.sync.tolist() for batch in rest]
    ([[1, 1, 1, 2]], [[3]])
    """
    ready: list[Batch] = []
    rest: list[Batch] = []
    for run in runs:
        end = run.rows_until(until)
        if end:
            ready.append(run.slice(0, end))
        if end < len(run):
            rest.append(run.slice(end, len(run)))
    if len(ready) < 2:
        return ready, rest
    if all(run.first_sync == run.last_sync for run in ready) and sum(map(len, ready)) >= SMALL_STEP * len(ready):
        return sorted(ready, key=lambda run: run.first_sync), rest
    begins = np.concatenate([run.sync[_begins(run)] for run in ready])
    steps = np.unique(begins)
    if sum(map(len, ready)) < SMALL_STEP * len(begins):
        return [Batch.concat(ready).sorted_by_sync()], rest
    pieces = [[run.slice(int(low), int(high)) for low, high in zip(*_bounds(run, steps), strict=True)] for run in ready]
    return [piece for of_step in zip(*pieces, strict=True) for piece in of_step if len(piece)], rest


def _begins(batch: Batch) -> Int64s:
    """Return the places where the steps of ordered rows begin."""
    if not len(batch) or batch.first_sync == batch.last_sync:
        return np.zeros(1, np.int64)
    return np.append(0, np.flatnonzero(batch.sync[1:] != batch.sync[:-1]) + 1)


def _bounds(run: Batch, steps: Int64s) -> tuple[Int64s, Int64s]:
    if (step := run.first_sync) == run.last_sync:
        return np.where(steps <= step, 0, len(run)), np.where(steps < step, 0, len(run))
    return np.searchsorted(run.sync, steps), np.searchsorted(run.sync, steps, side="right")
