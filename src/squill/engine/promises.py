"""What the user promises of an input, checked while it is read.

`sorted_by` and `duration` need one look back; `packed` and `unique` remember every key seen, which is what
`trust=True` saves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from squill.engine.columns import as_int64, framed, valid_of
from squill.engine.key_table import KeyTable
from squill.errors import InputError
from squill.plan.nodes import Source

__all__ = ["PromiseCheck"]

Columns = Mapping[str, pl.Series]


class PromiseCheck:
    """Checks a source's promises piece by piece, in reading order."""

    def __init__(self, source: Source) -> None:
        promises = source.promises
        self._source = source
        self._label = source.label
        trusted = promises.trust
        self._sorted_by = () if trusted else promises.sorted_by
        self._packed = () if trusted else promises.packed
        self._unique = () if trusted else promises.unique
        self._duration = None if trusted else promises.duration
        self._nothing = not (self._sorted_by or self._packed or self._unique or self._duration is not None)
        self._last: pl.DataFrame | None = None
        self._packed_keys = self._table(self._packed)
        self._last_packed = -1
        self._unique_keys = self._table(self._unique)

    def _table(self, names: Sequence[str]) -> KeyTable | None:
        return KeyTable([self._source.columns[name] for name in names]) if names else None

    def __call__(self, columns: Columns, first_row: int, label: str) -> None:
        """Check one piece; its first row has the number `first_row`."""
        if self._nothing or not len(next(iter(columns.values()), ())):
            return
        self._label = label
        if self._duration is not None:
            self._check_duration(columns, first_row)
        if self._sorted_by:
            self._check_sorted(columns, first_row)
        if self._packed_keys is not None:
            self._check_packed(self._packed_keys, columns, first_row)
        if self._unique_keys is not None:
            self._check_unique(self._unique_keys, columns, first_row)

    def leave_key(self) -> None:
        """Take it that the next row has another packed key than the last one."""
        self._last_packed = -1

    def _broken(self, columns: Columns, row: int, first_row: int, what: str) -> InputError:
        shown = {name: series[row] for name, series in columns.items()}
        return InputError(
            f"input {self._label!r}: row {first_row + row} {what}: {shown}",
            "drop the promise, or correct the data.",
        )

    def _check_duration(self, columns: Columns, first_row: int) -> None:
        lifetime = self._source.lifetime
        assert lifetime is not None
        assert lifetime.end is not None
        assert self._duration is not None
        frame = pl.DataFrame(list(columns.values()))
        times = frame.select(start=lifetime.start.expr, end=lifetime.end.expr)
        starts, _ = as_int64(times["start"].rechunk())
        ends, _ = as_int64(times["end"].rechunk())
        wrong = (ends - starts != self._duration) | ~valid_of(times["end"].rechunk()).view(np.bool_)
        if wrong.any():
            ticks = f"{self._duration} tick{'s' if self._duration != 1 else ''}"
            raise self._broken(
                columns, int(np.argmax(wrong)), first_row, f"does not last {ticks} as duration= promises"
            )

    def _check_sorted(self, columns: Columns, first_row: int) -> None:
        frame = framed([columns[name] for name in self._sorted_by])
        if self._last is not None:
            frame = pl.concat([self._last, frame])
        offset = 0 if self._last is None else 1
        row = _first_descent(frame)
        if row is not None:
            names = ", ".join(self._sorted_by)
            raise self._broken(columns, row - offset, first_row, f"is not in the order of sorted_by=[{names}]")
        self._last = frame.tail(1)

    def _check_packed(self, table: KeyTable, columns: Columns, first_row: int) -> None:
        seen = table.capacity
        slots = table.slots([columns[name] for name in self._packed])
        before = np.concatenate([[self._last_packed], slots[:-1]])
        # A new run of a key must be a key never seen: slots are numbered in order of appearance.
        heads = np.flatnonzero(slots != before)
        known = np.maximum.accumulate(np.concatenate([[seen - 1], slots]))[heads]
        again = slots[heads] <= known
        if again.any():
            names = ", ".join(self._packed)
            row = int(heads[np.argmax(again)])
            raise self._broken(columns, row, first_row, f"takes up a key again that packed=[{names}] had left")
        self._last_packed = int(slots[-1])

    def _check_unique(self, table: KeyTable, columns: Columns, first_row: int) -> None:
        seen = table.capacity
        slots = table.slots([columns[name] for name in self._unique])
        fresh = np.arange(seen, seen + len(slots))
        if not np.array_equal(slots, fresh):
            names = ", ".join(self._unique)
            row = int(np.argmax(slots != fresh))
            raise self._broken(columns, row, first_row, f"repeats a key of unique=[{names}]")


def _first_descent(frame: pl.DataFrame) -> int | None:
    """Return the first row that is below the one before it, nulls first; None when there is none."""
    later = frame.slice(1)
    earlier = frame.slice(0, max(frame.height - 1, 0))
    descends = np.zeros(later.height, np.bool_)
    undecided = np.ones(later.height, np.bool_)
    for before, after in zip(earlier.get_columns(), later.get_columns(), strict=True):
        below = (after < before).fill_null(False) | (after.is_null() & before.is_not_null())
        equal = after.eq_missing(before)
        descends |= undecided & below.to_numpy()
        undecided &= equal.to_numpy()
    return int(np.argmax(descends)) + 1 if descends.any() else None
