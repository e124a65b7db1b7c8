"""A dense slot for every key: what operators index their state arrays by.

A `KeyTable` gives each distinct key a small integer, its *slot*, and takes it back when the key has nothing
alive. Operators keep state in plain arrays indexed by slot, sized by `KeyTable.capacity`. Slots of released
keys are used again, last released first, so those arrays stay as dense as the keys alive.

Idea: an open-addressed table on the stable key hash (`squill.engine.hashing`) leads from a key to its slot;
the key's values, kept by slot in one of two forms (`squill.engine.key_forms`), decide whether it is really the
same key.

A null is a value here and equals another null. NaNs are equal and come back as the one NaN; -0.0 equals 0.0
and comes back as 0.0.

Invariants: the table is at most half full; the places of released keys are closed at once, so it holds
nothing but living keys; the bytes of released keys are dropped when the arena would grow. So memory is
bounded by the most keys ever alive together. Cost: 12 ns per row for an int64 key, 1.2 ns where there are few of them
(`recent_keys`), 55 ns for a short string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.ascending_keys import AscendingKeys
from squill.engine.columns import Array, Int64s, Uint8s, has_parameters, read_only
from squill.engine.hashing import (
    HASH_VERSION,
    Hashes,
    Part,
    Words,
    hash_parts,
    part_of,
    supports,
)
from squill.engine.kernels import key_table as kernels
from squill.engine.key_forms import (
    ByteKeys,
    Keys,
    Prepared,
    SavedKeys,
    Slots,
    WordKeys,
    fit_words,
    no_key,
    power_of_two,
    resized,
)
from squill.engine.key_sieve import KeySieve
from squill.engine.large_arrays import large_array
from squill.engine.recent_keys import MOST_KEYS, RecentKeys

__all__ = ["KeyTable", "supports"]

_FIRST_SLOTS = 256
_MOST_SLOTS = 2**31 - 1
_SIEVED_ROWS = 16_384
"""Fewer rows are looked for one by one; a sieve is made once as many as a fourth of the table's keys were."""
_SAMPLE_ROWS = 1_024
_MOST_EXPECTED = 1 << 20
"""Room for more is made when they are there: who expects them may know of rows, not of keys."""


class KeyTable:
    """Slots for keys of the given column types.

    Parameters
    ----------
    dtypes
        The types of the key columns, in order.

    Raises
    ------
    TypeError
        When a type cannot be a key (`supports`): nested types, objects, 128-bit integers.

    Examples
    --------
    >>> table = KeyTable([pl.String()])
    >>> table.slots([pl.Series(["b", "a", "b"])])
    array([0, 1, 0], dtype=int32)
    >>> table.release(np.array([0]))
    >>> table.slots([pl.Series(["a", "c"])])
    array([1, 0], dtype=int32)
    >>> table.gather(np.array([0, 1]), ["key"])[0].to_list()
    ['c', 'a']
    """

    def __init__(self, dtypes: Sequence[pl.DataType]) -> None:
        if not dtypes:
            raise ValueError("a key needs at least one column")
        for dtype in dtypes:
            if not supports(dtype):
                raise TypeError(f"a column of type {dtype} cannot be a key")
        self.dtypes = tuple(dtypes)
        self._kinds = [None if has_parameters(dtype) else type(dtype) for dtype in dtypes]
        self._clear()

    def _clear(self) -> None:
        self._keys: Keys = WordKeys(self.dtypes) if fit_words(self.dtypes) else ByteKeys(self.dtypes)
        self._state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)
        self._table = _empty_table(2 * _FIRST_SLOTS)
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._free = np.empty(0, dtype=np.int32)
        self._recent = RecentKeys() if isinstance(self._keys, WordKeys) and len(self.dtypes) == 1 else None
        self._sieve: KeySieve | None = None
        self._sought = 0
        self._ascending: AscendingKeys | None = None
        self._knows_order = False
        self._grow_slots(_FIRST_SLOTS)

    @property
    def capacity(self) -> int:
        """One more than the highest slot ever handed out."""
        return int(self._state[kernels.NEXT])

    @property
    def live(self) -> int:
        """The number of keys in the table."""
        return int(self._state[kernels.LIVE])

    @property
    def arena(self) -> Uint8s:
        """The bytes of all keys of a bytes-form table, read-only; replaced when `slots` makes it grow."""
        return read_only(self._bytes_form().arena)

    @property
    def arena_start(self) -> Int64s:
        """Where each slot's bytes begin in `arena`, read-only; replaced when `slots` makes it grow."""
        return read_only(self._bytes_form().starts)

    @property
    def arena_length(self) -> npt.NDArray[np.int32]:
        """How many bytes each slot's key has; -1 for a slot without a key, -2 for null."""
        return read_only(self._bytes_form().lengths)

    @property
    def _single_words(self) -> Int64s:
        assert isinstance(self._keys, WordKeys)
        return self._keys.words.reshape(-1)

    @property
    def _saw_null(self) -> bool:
        return isinstance(self._keys, WordKeys) and self._keys.saw_null

    def _bytes_form(self) -> ByteKeys:
        if not isinstance(self._keys, ByteKeys):
            raise TypeError("keys of fixed width have no arena")
        return self._keys

    def expect(self, keys: int) -> None:
        """Make room for about so many keys, in a table that never had any, instead of doubling it again and again."""
        keys = min(keys, _MOST_EXPECTED)
        if not self.capacity and 2 * keys > len(self._table):
            self._table = _empty_table(power_of_two(2 * keys))
            self._grow_slots(keys)

    def slots(self, columns: Sequence[pl.Series], hashes: Hashes | None = None) -> Slots:
        """Return each row's slot; keys not seen before get a free slot, else the next number.

        Parameters
        ----------
        columns
            The key columns, of the table's types, equally long.
        hashes
            What `hash_columns` gives for them, if the caller has it.
        """
        return self._look_up(columns, hashes, may_insert=True)

    def _look_up(self, columns: Sequence[pl.Series], hashes: Hashes | None, *, may_insert: bool) -> Slots:
        parts = self._parts(columns)
        part, recent = parts[0], self._recent
        if recent is None or not isinstance(part, Words) or part.has_nulls or self._saw_null:
            return self._probe(parts, hashes, may_insert=may_insert)
        out = np.empty(len(part.values), dtype=np.int32)
        missed = recent.recall(part.values, out)
        if missed == len(out):
            out = self._probe(parts, hashes, may_insert=may_insert)
            recent.remember(part.values, out)
        elif missed:
            rows = np.flatnonzero(out < 0)
            out[rows] = self._probe_rows(recent, part, rows, hashes, may_insert=may_insert)
        if self.live > MOST_KEYS:
            self._recent = None
        return out

    def _probe_rows(
        self, recent: RecentKeys, part: Words, rows: Int64s, hashes: Hashes | None, *, may_insert: bool
    ) -> Slots:
        """Return the slots of some rows, and remember them."""
        chosen = _chosen_words(part, rows)
        found = self._probe([chosen], None if hashes is None else hashes[rows], may_insert=may_insert)
        recent.remember(chosen.values, found)
        return found

    def tally(self, columns: Sequence[pl.Series]) -> tuple[Slots, Int64s] | None:
        """Return slots and how many rows have each, some perhaps twice; None where rows are not counted quickly.

        Keys not seen before get a slot as with `slots`.

        Examples
        --------
        >>> table = KeyTable([pl.Int64()])
        >>> table.slots([pl.Series([7, 8])])
        array([0, 1], dtype=int32)
        >>> table.tally([pl.Series([8, 9, 8, 8, 7])])
        (array([0, 1, 2], dtype=int32), array([1, 3, 1]))
        """
        recent = self._recent
        if recent is None or self._saw_null:
            return None
        (part,) = self._parts(columns)
        if not isinstance(part, Words) or part.has_nulls:
            return None
        slots, counts, others = recent.tally(part.values)
        if len(others) > len(part.values) // 4:
            return None  # all are looked up at once, and remembered by that
        if len(others):
            found = self._probe_rows(recent, part, others, None, may_insert=True)
            slots, counts = np.concatenate([slots, found]), np.concatenate([counts, np.ones(len(found), np.int64)])
        if self.live > MOST_KEYS:
            self._recent = None
        return slots, counts

    def _probe(self, parts: list[Part], hashes: Hashes | None, *, may_insert: bool) -> Slots:
        if may_insert:
            self._sieve, self._sought = None, 0
            self._ascending, self._knows_order = None, False
            return self._look_for(parts, _known_or_hashed(hashes, parts), may_insert=True)
        rows, found = self._seek(parts, hashes)
        if rows is None:
            return found
        out = np.full(len(parts[0].valid), -1, np.int32)
        out[rows] = found
        return out

    def _seek(self, parts: list[Part], hashes: Hashes | None) -> tuple[Int64s | None, Slots]:
        """Return the rows, None for all, whose keys may be in the table, and their slots: -1 for those that are not."""
        key_hashes = _known_or_hashed(hashes, parts)
        sieve = self._sieve_for(parts, key_hashes)
        if sieve is None:
            return None, self._look_for(parts, key_hashes, may_insert=False)
        rows = sieve.sifted(key_hashes)
        return rows, self._look_for(_rows_of(parts, rows), read_only(key_hashes[rows]), may_insert=False)

    def _sieve_for(self, parts: list[Part], hashes: Hashes) -> KeySieve | None:
        """Return a sieve where many rows are looked for of which most are not there, by the first of them."""
        self._sought += len(hashes)
        if len(hashes) < _SIEVED_ROWS or not all(isinstance(part, Words) for part in parts):
            return None
        if self._sieve is None and self._sought >= self.live // 4:
            self._sought = 0
            first = _rows_of(parts, np.arange(_SAMPLE_ROWS))
            found = self._look_for(first, hashes[:_SAMPLE_ROWS], may_insert=False)
            if np.count_nonzero(found >= 0) <= _SAMPLE_ROWS // 2:
                self._sieve = KeySieve(self._hashes[self.living])
        return self._sieve

    def _look_for(self, parts: list[Part], key_hashes: Hashes, *, may_insert: bool) -> Slots:
        out = np.empty(len(key_hashes), dtype=np.int32)
        keys = self._keys.prepare(parts)
        row = 0
        while True:
            code, row = self._keys.look_up(
                keys, key_hashes, row, self._table, self._hashes, self._free, self._state, out, may_insert=may_insert
            )
            if code == kernels.DONE:
                return out
            self._make_room(code, keys, row)

    def _make_room(self, code: int, keys: Prepared, row: int) -> None:
        if code == kernels.GROW_TABLE:
            table = _empty_table(2 * len(self._table))
            kernels.rebuild_table(self._table, table)
            self._table = table
        elif code == kernels.GROW_SLOTS:
            self._grow_slots(2 * len(self._hashes))
        else:
            self._bytes_form().grow_arena(int(keys[1][row]), self._state)

    def _grow_slots(self, size: int) -> None:
        if len(self._hashes) >= _MOST_SLOTS:
            raise OverflowError(f"a key table holds at most {_MOST_SLOTS} keys")
        size = min(size, _MOST_SLOTS)
        self._hashes = resized(self._hashes, size)
        self._free = resized(self._free, size)
        self._keys.grow(size)

    def find(self, columns: Sequence[pl.Series], hashes: Hashes | None = None) -> Slots:
        """Return each row's slot, or -1 for a key that is not in the table; nothing is inserted.

        Examples
        --------
        >>> table = KeyTable([pl.Int64()])
        >>> table.slots([pl.Series([7])])
        array([0], dtype=int32)
        >>> table.find([pl.Series([8, 7])])
        array([-1,  0], dtype=int32)
        """
        return self._look_up(columns, hashes, may_insert=False)

    def find_rows(self, columns: Sequence[pl.Series], hashes: Hashes | None = None) -> tuple[Int64s | None, Slots]:
        """Return the rows whose keys are in the table, None for all, and their slots; nothing is inserted.

        Where few are, next to nothing is written for the others.

        Examples
        --------
        >>> table = KeyTable([pl.Int64()])
        >>> table.slots([pl.Series([7, 5])])
        array([0, 1], dtype=int32)
        >>> table.find_rows([pl.Series([8, 5, 5])])
        (array([1, 2]), array([1, 1], dtype=int32))
        """
        parts = self._parts(columns)
        merged = self._merged(parts)
        if merged is not None:
            return merged
        rows, slots = self._seek(parts, hashes) if self._recent is None else (None, self.find(columns, hashes))
        found = np.flatnonzero(slots >= 0)
        if len(found) == len(slots):
            return rows, slots
        return found if rows is None else rows[found], slots[found]

    def _merged(self, parts: list[Part]) -> tuple[Int64s | None, Slots] | None:
        """Return what `find_rows` does, where many rows come in the order of the keys."""
        part = parts[0]
        if len(parts) > 1 or not isinstance(part, Words) or part.has_nulls or len(part.values) < _SIEVED_ROWS:
            return None
        if not self._knows_order:
            is_whole = self.live == self.capacity and not self._saw_null
            self._ascending = AscendingKeys.of(self._single_words[: self.capacity]) if is_whole else None
            self._knows_order = True
        return None if self._ascending is None else self._ascending.find_rows(part.values)

    def _parts(self, columns: Sequence[pl.Series]) -> list[Part]:
        if len(columns) != len(self.dtypes):
            raise ValueError(f"the key has {len(self.dtypes)} columns, not {len(columns)}")
        for column, dtype, kind in zip(columns, self.dtypes, self._kinds, strict=True):
            found = column.dtype
            if type(found) is not kind and found != dtype:
                raise TypeError(f"key column {column.name!r} is of type {found}, not {dtype}")
        return [part_of(column) for column in columns]

    def release(self, slots: Array) -> None:
        """Forget the keys of these slots, each given once; the slots are handed out again, last first.

        Raises
        ------
        ValueError
            When a slot holds no key; those before it have been released.
        """
        given = _given(slots)
        self._ascending, self._knows_order = None, False
        code, row = kernels.release_slots(given, self._table, self._hashes, self._keys.lengths, self._free, self._state)
        if code == kernels.BAD_SLOT:
            raise no_key(given, row)
        if self._recent is not None:
            self._recent.forget(given, self._single_words)

    def gather(self, slots: Array, names: Sequence[str]) -> list[pl.Series]:
        """Return the key columns of living slots, in the table's types, under the given names.

        Raises
        ------
        ValueError
            When a slot was never handed out.
        """
        if len(names) != len(self.dtypes):
            raise ValueError(f"the key has {len(self.dtypes)} columns, not {len(names)}")
        return self._keys.gather(_given(slots), names, self.capacity)

    @property
    def living(self) -> Slots:
        """The slots that hold a key."""
        is_living = np.ones(self.capacity, np.bool_)
        is_living[self._free[: self._state[kernels.FREE]]] = False
        return np.flatnonzero(is_living).astype(np.int32)

    def keep(self, slots: Array) -> None:
        """Forget all keys but those of these living slots, of which the i-th is slot i from now on.

        Examples
        --------
        >>> table = KeyTable([pl.Int64()])
        >>> _ = table.slots([pl.Series([7, 8, 9])])
        >>> table.keep(np.array([0, 2]))
        >>> table.find([pl.Series([7, 8, 9])])
        array([ 0, -1,  1], dtype=int32)
        """
        self._refill(self._columns(slots))

    def keep_under(self, number_of: Array) -> Slots:
        """Forget keys whose first column, a slot of another table, has no new number; return the slots that stay.

        Examples
        --------
        >>> table = KeyTable([pl.Int32(), pl.Int64()])
        >>> _ = table.slots([pl.Series([0, 1, 2], dtype=pl.Int32), pl.Series([7, 8, 9])])
        >>> table.keep_under(np.array([-1, 1, 0]))
        array([1, 2], dtype=int32)
        >>> table.find([pl.Series([0], dtype=pl.Int32), pl.Series([9])])
        array([1], dtype=int32)
        """
        numbers = number_of[self._columns(self.living)[0].to_numpy()]
        kept = self.living[numbers >= 0]
        self._refill([pl.Series(numbers[numbers >= 0].astype(np.int32)), *self._columns(kept)[1:]])
        return kept

    def _columns(self, slots: Array) -> list[pl.Series]:
        return self.gather(slots, [str(number) for number in range(len(self.dtypes))])

    def _refill(self, columns: Sequence[pl.Series]) -> None:
        self._clear()
        if len(columns[0]):
            self.slots(columns)

    def hash_of(self, slots: Array) -> Hashes:
        """Return the key hashes of living slots.

        Examples
        --------
        >>> table, keys = KeyTable([pl.String()]), [pl.Series(["abc"])]
        >>> hex(table.hash_of(table.slots(keys))[0])
        '0x44bc2cf5ad770999'
        """
        hashes: Hashes = self._hashes[: self.capacity].take(slots)
        return hashes

    def save(self) -> SavedKeys:
        """Return everything `load` needs, as views that hold until the table is used again.

        What free slots hold means nothing. It is not cleared: every place that changes is written again.
        """
        capacity = self.capacity
        return {
            "hash_version": np.array([HASH_VERSION], dtype=np.int64),
            "free": self._free[: self._state[kernels.FREE]],
            "hashes": self._hashes[:capacity],
            **self._keys.save(capacity, self._state),
        }

    def load(self, saved: Mapping[str, Array]) -> None:
        """Replace the content by what `save` of a table of the same types returned.

        Examples
        --------
        >>> table, copy = KeyTable([pl.Int64()]), KeyTable([pl.Int64()])
        >>> table.slots([pl.Series([7, 8])])
        array([0, 1], dtype=int32)
        >>> copy.load(table.save())
        >>> copy.find([pl.Series([8])])
        array([1], dtype=int32)
        """
        version = int(saved["hash_version"][0])
        if version != HASH_VERSION:
            raise ValueError(f"saved with key hash version {version}, this is version {HASH_VERSION}")
        hashes, free = saved["hashes"], saved["free"]
        capacity = len(hashes)
        self._clear()
        size = max(_FIRST_SLOTS, power_of_two(capacity))
        self._grow_slots(size)
        self._hashes[:capacity] = hashes
        self._free[: len(free)] = free
        live = capacity - len(free)
        self._state[[kernels.LIVE, kernels.NEXT, kernels.FREE]] = live, capacity, len(free)
        is_free = np.zeros(capacity, dtype=np.uint8)
        is_free[free] = 1
        self._table = _empty_table(max(2 * _FIRST_SLOTS, 2 * power_of_two(live)))
        kernels.fill_table(self._hashes[:capacity], is_free, self._table)
        self._keys.load(saved, capacity, self._state)


def _empty_table(size: int) -> Int64s:
    table = large_array(size, np.int64)
    table[:] = kernels.EMPTY
    return table


def _known_or_hashed(hashes: Hashes | None, parts: Sequence[Part]) -> Hashes:
    return hash_parts(parts) if hashes is None else read_only(hashes)


def _rows_of(parts: Sequence[Part], rows: Int64s) -> list[Part]:
    """Return some rows of parts that are words."""
    return [_chosen_words(part, rows) for part in parts if isinstance(part, Words)]


def _chosen_words(part: Words, rows: Int64s) -> Words:
    # Without nulls all rows are valid alike.
    valid = part.valid[rows] if part.has_nulls else part.valid[: len(rows)]
    return part._replace(values=read_only(part.values[rows]), valid=read_only(valid))


def _given(slots: Array) -> Slots:
    return read_only(slots if slots.dtype == np.int32 else slots.astype(np.int32))
