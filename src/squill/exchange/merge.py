"""Many sorted runs become one, in sync order.

A *run* is what one producer sent: batches whose sync never decreases. The merge holds the head batch of every
run. When the earliest head ends before any other begins, it is handed on whole, uncopied; so runs that do not
overlap, such as the row ranges of a sorted frame, cost nothing. Otherwise every head is cut at the earliest
end among them, because up to there nothing more can come, and the pieces are merged: a cascade of binary
merges over (time, row number) alone, then one gather per column. Rows are moved once, whatever the number of
runs. Of equal times the earlier run's rows come first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch, Int64s
from squill.engine.columns import fixed_width, joined, read_only, series_from, values_and_valid_of, values_of
from squill.engine.large_arrays import large_array
from squill.engine.quick_series import taken_rows
from squill.exchange.kernels.merge import copy_turns, find_turns, interleave, merge_neighbours, merge_pair

__all__ = ["merge_by_time", "merge_order", "merge_runs", "worth_pushing"]

SMALL_ROWS = 8_192
"""To push a batch costs as much as some thousand rows: so many are put together first."""

LONG_TURN = 16
"""Where the rows of two runs take turns of so many or more on average, they are copied turn by turn."""

Head = tuple[int, int, Batch, Iterator[Batch]]
"""First sync, number of the run, the batch, and what follows it."""
Rows = npt.NDArray[np.uint32]
PAIR = 2
PACKED = (pl.Boolean, pl.Decimal)
"""Types of fixed width whose values are not one machine word each."""


def merge_runs(runs: Sequence[Iterable[Batch]]) -> Iterator[Batch]:
    """Yield the rows of all runs in sync order, in batches.

    Memory: one batch per run, and the merged copy of their overlap.
    """
    heads: list[Head] = []
    for number, run in enumerate(runs):
        _advance(heads, number, iter(run))
    while heads:
        _, number, batch, rest = heads[0]
        # In a heap the second smallest is one of the next two.
        if len(heads) == 1 or (batch.last_sync, number) < min(head[:2] for head in heads[1:3]):
            heapq.heappop(heads)
            yield batch
            _advance(heads, number, rest)
        else:
            yield _merge_overlap(heads)


def worth_pushing(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the rows in the same order, neighbours that are small in one batch."""
    held: list[Batch] = []
    rows = 0
    for batch in batches:
        if held and rows + len(batch) > SMALL_ROWS:
            yield _in_one(held)
            held, rows = [], 0
        held.append(batch)
        rows += len(batch)
    if held:
        yield _in_one(held)


def _in_one(batches: Sequence[Batch]) -> Batch:
    whole = Batch.concat(batches)
    whole.is_ordered = True
    return whole


def merge_by_time(runs: Sequence[Sequence[Batch]], slices: int) -> list[Callable[[], list[Batch]]]:
    """Return functions that merge one slice of time each; their answers, one after the other, are the merged runs.

    They may run at once, each once: they let go of the runs' batches as these are merged. Slices have about as many
    rows as each other, unless many rows have one time.
    """
    longest = max(runs, key=lambda run: sum(map(len, run)), default=())
    if slices < 2 or not any(map(len, longest)) or longest[0].is_timeless:
        return [partial(_merged_list, [list(run) for run in runs])]
    cuts = sorted(set(_times_at_fractions(longest, slices)))
    bounds = [None, *cuts, None]
    parts = [[list(_between(run, low, high)) for run in runs] for low, high in pairwise(bounds)]
    return [partial(_merged_list, part) for part in parts]


def _merged_list(runs: Sequence[list[Batch]]) -> list[Batch]:
    return list(merge_runs([_handed_out(run) for run in runs]))


def _handed_out(run: list[Batch]) -> Iterator[Batch]:
    """Yield the batches, and keep none that has been asked for."""
    run.reverse()
    while run:
        yield run.pop()


def _times_at_fractions(run: Sequence[Batch], slices: int) -> Iterator[int]:
    """Yield the times of the rows that cut a run into equal slices; nothing is put together for it."""
    ends = np.cumsum([len(batch) for batch in run])
    for k in range(1, slices):
        row = int(ends[-1]) * k // slices
        number = int(np.searchsorted(ends, row, side="right"))
        yield int(run[number].sync[row - int(ends[number])])


def _between(run: Sequence[Batch], low: int | None, high: int | None) -> Iterator[Batch]:
    """Yield the rows of a run from time `low` up to, not including, `high`."""
    for batch in run:
        first = 0 if low is None else int(np.searchsorted(batch.sync, low))
        last = len(batch) if high is None else int(np.searchsorted(batch.sync, high))
        if first < last:
            yield batch.slice(first, last)


def _advance(heads: list[Head], number: int, rest: Iterator[Batch]) -> None:
    for batch in rest:
        if len(batch):
            heapq.heappush(heads, (batch.first_sync, number, batch, rest))
            return


def _merge_overlap(heads: list[Head]) -> Batch:
    """Take every row up to the earliest end of a head, and refill."""
    bound = min(batch.last_sync for _, _, batch, _ in heads)
    pieces: list[tuple[int, Batch]] = []
    while heads and heads[0][0] <= bound:
        _, number, batch, rest = heapq.heappop(heads)
        size = batch.rows_until(bound)
        pieces.append((number, batch.slice(0, size)))
        if size < len(batch):
            left = batch.slice(size, len(batch))
            heapq.heappush(heads, (left.first_sync, number, left, rest))
        else:
            _advance_past(heads, number, rest, bound, pieces)
    pieces.sort(key=lambda piece: piece[0])
    return _merged([piece for _, piece in pieces])


def _advance_past(
    heads: list[Head], number: int, rest: Iterator[Batch], bound: int, pieces: list[tuple[int, Batch]]
) -> None:
    """Refill from one run; batches that lie wholly at the bound belong to the rows being taken."""
    for batch in rest:
        if not len(batch):
            continue
        if batch.last_sync > bound:
            heapq.heappush(heads, (batch.first_sync, number, batch, rest))
            return
        pieces.append((number, batch))


def _merged(pieces: Sequence[Batch]) -> Batch:
    if len(pieces) == 1:
        return pieces[0]
    if all(piece.is_timeless for piece in pieces):
        return Batch.concat(pieces)
    merger = _merger([piece.sync for piece in pieces])
    durations = {piece.duration for piece in pieces}
    same = durations.pop() if len(durations) == 1 else None
    merged = Batch(
        merger.times,
        merger.values([piece.other for piece in pieces]) if same is None else same,
        # One after the other, so that little is held twice.
        {name: _column([piece.columns[name] for piece in pieces], merger) for name in pieces[0].columns},
    )
    hashes = [piece.hash for piece in pieces if piece.hash is not None]
    if len(hashes) == len(pieces) and len({names for names, _ in hashes}) == 1:
        merged.hash = hashes[0][0], merger.values([values for _, values in hashes])
    merged.is_ordered = True
    return merged


def _column(parts: Sequence[pl.Series], merger: _Merger) -> pl.Series:
    name, dtype = parts[0].name, parts[0].dtype
    if len(parts) != PAIR or not fixed_width(dtype) or type(dtype) in PACKED:
        return taken_rows(joined(parts).rechunk(), series_from("", merger.rows, None, pl.UInt32()))
    if not any(part.null_count() for part in parts):
        return series_from(name, merger.values([values_of(part) for part in parts]), None, dtype)
    values, valid = zip(*map(values_and_valid_of, parts), strict=True)
    return series_from(name, merger.values(values), merger.values(valid), dtype)


def _merger(runs: Sequence[Int64s]) -> _Merger:
    """Return how rows of these times, of which each run has some, are put into one order."""
    if len(runs) != PAIR:
        return _OfMany(runs)
    turns = np.empty(2 + sum(map(len, runs)) // LONG_TURN, np.int64)
    count = find_turns(*map(read_only, runs), turns)
    return _RowByRow(runs) if count < 0 else _ByTurns(runs, turns[:count])


class _Merger(Protocol):
    """The order of the rows of several runs.

    ``times``  when they are, in that order.
    ``rows``   which they are, counted from the first run's first.
    """

    @property
    def times(self) -> Int64s: ...
    @property
    def rows(self) -> Rows: ...
    def values(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the values of all parts, one for each run, in the merged order."""
        ...


class _OfMany:
    """Any number of runs: their values are put one after the other first."""

    def __init__(self, runs: Sequence[Int64s]) -> None:
        self.times, self.rows = merge_order(runs)

    def values(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        out = large_array(len(self.rows), parts[0].dtype)
        np.take(np.concatenate(parts), self.rows, out=out)
        return out


class _OfTwo:
    """Two runs, whose values are read where they lie."""

    def __init__(self, runs: Sequence[Int64s]) -> None:
        self._sizes = [len(run) for run in runs]

    @cached_property
    def rows(self) -> Rows:
        left, right = self._sizes
        return self.values([np.arange(left, dtype=np.uint32), np.arange(left, left + right, dtype=np.uint32)])

    def values(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        out = large_array(sum(self._sizes), parts[0].dtype)
        left, right = _words(parts)
        self._write(left, right, out.view(f"u{out.dtype.itemsize}"))
        return out

    def _write(self, left: npt.NDArray[Any], right: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        raise NotImplementedError


class _RowByRow(_OfTwo):
    """Rows of both runs lie between each other."""

    def __init__(self, runs: Sequence[Int64s]) -> None:
        super().__init__(runs)
        self.times = large_array(sum(self._sizes), np.int64)
        self._is_right = large_array(len(self.times), np.uint8)
        merge_pair(*map(read_only, runs), self.times, self._is_right)

    def _write(self, left: npt.NDArray[Any], right: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        interleave(self._is_right, left, right, out)


class _ByTurns(_OfTwo):
    """Many rows of one run, then many of the other: copied as they lie."""

    def __init__(self, runs: Sequence[Int64s], turns: Int64s) -> None:
        super().__init__(runs)
        self._turns = turns
        self.times = self.values(runs)

    def _write(self, left: npt.NDArray[Any], right: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        copy_turns(self._turns, left, right, out)


def _words(parts: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return values as the machine words they are, so that kernels are compiled once for each width."""
    return [read_only(np.ascontiguousarray(part).view(f"u{part.dtype.itemsize}")) for part in parts]


def merge_order(runs: Sequence[Int64s]) -> tuple[Int64s, Rows]:
    """Return the times of all runs, each of which is sorted, in order, and the row of each among all of them.

    Examples
    --------
    >>> times, rows = merge_order([np.array([1, 4]), np.array([2, 4]), np.array([0])])
    >>> times.tolist(), rows.tolist()
    ([0, 1, 2, 4, 4], [4, 0, 2, 1, 3])
    """
    bounds = np.cumsum([0, *(len(run) for run in runs)])
    times = np.concatenate(runs)
    rows = np.arange(len(times), dtype=np.uint32)
    new_times, new_rows = np.empty_like(times), np.empty_like(rows)
    while len(bounds) > 2:
        merge_neighbours(times, rows, bounds, new_times, new_rows)
        times, new_times = new_times, times
        rows, new_rows = new_rows, rows
        bounds = np.append(bounds[:-1:2], bounds[-1])
    return times, rows
