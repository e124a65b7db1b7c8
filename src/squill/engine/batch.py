"""`Batch`: many events as columns, in the order in which they take effect.

``sync`` is when a row takes effect, ``other`` the time it carries beside that:

=====================  ==========================================================
other > sync           an interval [sync, other)
other = infinity       a start edge, or an event without end
other < sync           an end edge: the event that began at ``other`` ends at ``sync``
=====================  ==========================================================

``sync`` never decreases inside a batch, nor from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.columns import joined, placed, read_only, taken
from squill.engine.kernels.gather import words_at, words_to
from squill.engine.large_arrays import large_array
from squill.time import INFINITY, MINUS_INFINITY

__all__ = [
    "DEFAULT_BATCH_ROWS",
    "LARGE_BATCH_ROWS",
    "Batch",
    "Instant",
    "Int64s",
    "before_time",
    "endless",
    "numbers_of",
    "repeated",
]

DEFAULT_BATCH_ROWS = 65_536
LARGE_BATCH_ROWS = 4_194_304

Int64s = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
KeyHash = tuple[tuple[str, ...], Hashes]
"""The columns of a key, and its hash in each row."""


@lru_cache(maxsize=8)
def _constant(value: int, size: int) -> Int64s:
    shared = np.full(size, value)
    shared.flags.writeable = False
    return shared


def repeated(value: int, size: int) -> Int64s:
    """Return one number `size` times, read-only and shared with others who ask for it."""
    return _constant(value, max(DEFAULT_BATCH_ROWS, 1 << max(size - 1, 0).bit_length()))[:size]


def endless(size: int) -> Int64s:
    """Return `size` infinities, read-only and shared: the ends of start edges."""
    return repeated(INFINITY, size)


def before_time(size: int) -> Int64s:
    """Return `size` minus infinities, read-only and shared: the starts of relational rows."""
    return repeated(MINUS_INFINITY, size)


class Instant(NamedTuple):
    """The times of so many rows that all have this one: no array is made of it before somebody reads it."""

    time: int
    size: int

    def array(self) -> Int64s:
        return repeated(self.time, self.size)


def _words_at(values: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the given rows; numpy would first make 64-bit numbers of short ones, for twice the time."""
    if rows.dtype != np.uint32:
        return values[rows]
    taken_words = large_array(len(rows), values.dtype)
    words_at(read_only(values), rows, taken_words)
    return taken_words


def _words_to(values: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values where they are placed."""
    placed_words = large_array(len(places), values.dtype)
    words_to(read_only(values), read_only(places), placed_words)
    return placed_words


class Batch:
    """Rows of one stream. `columns` are one-chunk Series of equal length.

    `other` may be given as a number: the one duration of all rows (infinity: endless), and `sync` as an `Instant`. They
    become arrays when somebody reads them, so that rows which only pass by, are filtered or counted never have them
    computed; `first_sync` and `last_sync` do not.
    `ids` numbers the rows of an operator that reports ends by number instead of by end edge (see
    `Operator.close_rows`): a range while no row is missing, then an array.
    `hash` has the key hash of each row and the columns that it is of, where rows were placed by it: whoever looks keys
    up need not compute it again (`hash_of`). It may be lost on the way, never wrong.
    """

    __slots__ = ("_other", "_sync", "columns", "hash", "ids", "is_ordered", "is_timeless")

    def __init__(
        self,
        sync: Int64s | Instant,
        other: Int64s | int,
        columns: dict[str, pl.Series] | None = None,
        ids: Int64s | range | None = None,
    ) -> None:
        self._sync = sync
        self._other = other
        self.columns = {} if columns is None else columns
        self.ids = ids
        self.hash: KeyHash | None = None
        self.is_timeless = False
        self.is_ordered = False
        """True when the sync is known to be in order, as it is for every batch that flows."""

    def __len__(self) -> int:
        return self._sync.size

    @property
    def sync(self) -> Int64s:
        if isinstance(self._sync, Instant):
            self._sync = self._sync.array()
        return self._sync

    @property
    def is_instant(self) -> bool:
        """Whether all rows have one time of which no array was made."""
        return isinstance(self._sync, Instant)

    @property
    def first_sync(self) -> int:
        """The time of the first row; there must be one."""
        return self._sync.time if isinstance(self._sync, Instant) else int(self._sync[0])

    @property
    def last_sync(self) -> int:
        """The time of the last row; there must be one."""
        return self._sync.time if isinstance(self._sync, Instant) else int(self._sync[-1])

    def rows_until(self, t: int) -> int:
        """Return how many rows take effect up to and at a time; where all do, no array is looked through."""
        if not len(self) or self.last_sync <= t:
            return len(self)
        return int(np.searchsorted(self.sync, t, side="right"))

    @property
    def other(self) -> Int64s:
        if isinstance(self._other, int):
            self._other = endless(len(self)) if self._other == INFINITY else self.sync + self._other
        return self._other

    @property
    def duration(self) -> int | None:
        """The one duration of all rows, while nobody has asked for their ends."""
        return self._other if isinstance(self._other, int) else None

    def hash_of(self, names: Sequence[str]) -> Hashes | None:
        """Return the hash of the key that these columns are, if it is known."""
        return self.hash[1] if self.hash is not None and self.hash[0] == tuple(names) else None

    def with_columns(self, columns: dict[str, pl.Series]) -> Batch:
        same = Batch(self._sync, self._other, columns, self.ids)
        same.is_timeless = self.is_timeless
        # A column of the name of a key may be another one.
        if self.hash is not None and all(columns.get(name) is self.columns[name] for name in self.hash[0]):
            same.hash = self.hash
        return same

    def with_times(self, sync: Int64s, other: Int64s | int) -> Batch:
        same = self.with_lifetimes(sync, other)
        same.ids = self.ids
        return same

    def with_duration(self, duration: int) -> Batch:
        """Return the rows with other ends, so long after their times, and without their numbers."""
        return self.with_lifetimes(self._sync, duration)

    def with_lifetimes(self, sync: Int64s | Instant, other: Int64s | int) -> Batch:
        """Return the rows with other times and without their numbers, as which other ends would be told."""
        same = Batch(sync, other, self.columns)
        same.hash = self.hash
        return same

    def slice(self, low: int, high: int) -> Batch:
        """Return rows low to high, sharing memory."""
        size = high - low
        if size == len(self):
            return self
        columns = {name: series.slice(low, size) for name, series in self.columns.items()}
        if self.is_timeless:
            piece = Batch.relational(columns, size)
        else:
            other = self._other if isinstance(self._other, int) else self._other[low:high]
            sync = self._sync._replace(size=size) if isinstance(self._sync, Instant) else self._sync[low:high]
            piece = Batch(sync, other, columns, None if self.ids is None else self.ids[low:high])
            piece.is_ordered = self.is_ordered
        if self.hash is not None:
            piece.hash = self.hash[0], self.hash[1][low:high]
        return piece

    def take(self, rows: npt.NDArray[Any]) -> Batch:
        """Return the given rows in the given order."""
        columns = taken(self.columns, rows)
        if self.is_timeless:
            chosen = Batch.relational(columns, len(rows))
        else:
            other = self._other if isinstance(self._other, int) else _words_at(self._other, rows)
            sync = Instant(self.first_sync, len(rows)) if self.is_instant else _words_at(self.sync, rows)
            chosen = Batch(sync, other, columns, self._ids_at(rows))
        if self.hash is not None:
            chosen.hash = self.hash[0], _words_at(self.hash[1], rows)
        return chosen

    def placed(self, places: npt.NDArray[Any]) -> Batch:
        """Return the rows, without their numbers, where they are placed; there are as many places, each given once."""
        columns = placed(self.columns, places)
        if self.is_timeless:
            moved = Batch.relational(columns, len(places))
        else:
            other = self._other if isinstance(self._other, int) else _words_to(self._other, places)
            sync = self._sync if isinstance(self._sync, Instant) else _words_to(self._sync, places)
            moved = Batch(sync, other, columns)
        if self.hash is not None:
            moved.hash = self.hash[0], _words_to(self.hash[1], places)
        return moved

    def _ids_at(self, rows: npt.NDArray[Any]) -> Int64s | None:
        if isinstance(self.ids, range):
            return rows + self.ids.start
        return None if self.ids is None else self.ids[rows]

    def filter(self, mask: npt.NDArray[np.bool_]) -> Batch:
        """Return the rows where `mask` is true."""
        if np.count_nonzero(mask) == len(mask):
            return self
        kept = self.take(np.flatnonzero(mask))
        kept.is_ordered = self.is_ordered
        return kept

    def sorted_by_sync(self) -> Batch:
        """Return the rows in sync order; equal times keep their order."""
        if self.is_timeless or self.is_ordered:
            return self
        ordered = self
        if np.count_nonzero(self.sync[1:] < self.sync[:-1]):
            ordered = self.take(np.argsort(self.sync, kind="stable"))
        ordered.is_ordered = True
        return ordered

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        """Return all rows of all batches, one after the other, without their numbers."""
        if len(batches) == 1:
            return batches[0]
        columns = {name: joined([batch.columns[name] for batch in batches]).rechunk() for name in batches[0].columns}
        if all(batch.is_timeless for batch in batches):
            whole = Batch.relational(columns, sum(map(len, batches)))
        else:
            durations = {batch.duration for batch in batches}
            same = durations.pop() if len(durations) == 1 else None
            other = np.concatenate([batch.other for batch in batches]) if same is None else same
            whole = Batch(_one_after_the_other([batch._sync for batch in batches]), other, columns)
        hashes = [batch.hash for batch in batches if batch.hash is not None]
        if len(hashes) == len(batches) and len({names for names, _ in hashes}) == 1:
            whole.hash = hashes[0][0], np.concatenate([values for _, values in hashes])
        return whole

    @staticmethod
    def empty(columns: dict[str, pl.DataType]) -> Batch:
        none = np.empty(0, np.int64)
        return Batch(none, none, {name: pl.Series(name, [], dtype) for name, dtype in columns.items()})

    @staticmethod
    def relational(columns: dict[str, pl.Series], size: int) -> Batch:
        """Return rows that are alive at every instant; their times are shared, not stored."""
        batch = Batch(before_time(size), INFINITY, columns)
        batch.is_timeless = True
        return batch


def _one_after_the_other(times: Sequence[Int64s | Instant]) -> Int64s | Instant:
    """Return all times; of rows that all have one, no array is made."""
    instants = {item.time for item in times if isinstance(item, Instant)}
    if len(instants) == 1 and all(isinstance(item, Instant) for item in times):
        return Instant(instants.pop(), sum(item.size for item in times))
    return np.concatenate([item.array() if isinstance(item, Instant) else item for item in times])


def numbers_of(batch: Batch) -> Int64s:
    """Return the rows' numbers as an array."""
    assert batch.ids is not None
    return np.arange(batch.ids.start, batch.ids.stop) if isinstance(batch.ids, range) else batch.ids
