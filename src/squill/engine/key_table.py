"""A dense slot for every key: what operators index their state arrays by.

A `KeyTable` gives each distinct key a small integer, its *slot*, and takes it back when the key has nothing
alive. Operators keep state in plain arrays indexed by slot, sized by `KeyTable.capacity`. Slots of released
keys are used again, last released first, so those arrays stay as dense as the keys alive.

Idea: an open-addressed table on the stable key hash (`squill.engine.hashing`) leads from a key to its slot;
the key's values, kept by slot, decide whether it is really the same key. They are kept in one of two forms:

- *words*: every column fits one 64-bit word, at most 8 columns: a matrix of words and a bit mask of nulls;
- *bytes*: any other key, as one byte string in an arena. A single String or Binary column is its own bytes,
  so a table of one Binary column serves as an interner of byte strings. Several columns are written one
  after the other so that different keys give different strings.

A null is a value here and equals another null. NaNs are equal and come back as the one NaN; -0.0 equals 0.0
and comes back as 0.0.

Invariants: the table is at most half full; the places of released keys are closed at once, so it holds
nothing but living keys; the bytes of released keys are dropped when the arena would grow. So memory is
bounded by the most keys ever alive together. Cost: 12 ns per row for an int64 key, 1.2 ns where there are few of them
(`recent_keys`), 55 ns for a short string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from squill.engine.ascending_keys import AscendingKeys
from squill.engine.columns import Array, Int64s, Uint8s, has_parameters, read_only, series_from
from squill.engine.hashing import (
    HASH_VERSION,
    Bytes,
    Hashes,
    Limbs,
    Part,
    Words,
    hash_parts,
    part_of,
    supports,
)
from squill.engine.kernels import key_table as kernels
from squill.engine.key_sieve import KeySieve
from squill.engine.recent_keys import MOST_KEYS, RecentKeys

__all__ = ["KeyTable", "supports"]

Slots: TypeAlias = npt.NDArray[np.int32]
SavedKeys: TypeAlias = dict[str, Array]

_FIRST_SLOTS = 256
_FIRST_ARENA = 4096
_MOST_SLOTS = 2**31 - 1
_SIEVED_ROWS = 16_384
"""Fewer rows are looked for one by one; a sieve is made once as many as a fourth of the table's keys were."""
_SAMPLE_ROWS = 1_024
_MOST_EXPECTED = 1 << 20
"""Room for more is made when they are there: who expects them may know of rows, not of keys."""
_NO_LENGTHS = np.empty(0, dtype=np.int32)
_NO_STARTS = read_only(np.empty(0, dtype=np.int64))


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
        self._keys: _Keys = _WordKeys(self.dtypes) if _fit_words(self.dtypes) else _ByteKeys(self.dtypes)
        self._state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)
        self._table = _empty_table(2 * _FIRST_SLOTS)
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._free = np.empty(0, dtype=np.int32)
        self._recent = RecentKeys() if isinstance(self._keys, _WordKeys) and len(self.dtypes) == 1 else None
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
        assert isinstance(self._keys, _WordKeys)
        return self._keys.words.reshape(-1)

    @property
    def _saw_null(self) -> bool:
        return isinstance(self._keys, _WordKeys) and self._keys.saw_null

    def _bytes_form(self) -> _ByteKeys:
        if not isinstance(self._keys, _ByteKeys):
            raise TypeError("keys of fixed width have no arena")
        return self._keys

    def expect(self, keys: int) -> None:
        """Make room for about so many keys, in a table that never had any, instead of doubling it again and again."""
        keys = min(keys, _MOST_EXPECTED)
        if not self.capacity and 2 * keys > len(self._table):
            self._table = _empty_table(_power_of_two(2 * keys))
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

    def _make_room(self, code: int, keys: _Prepared, row: int) -> None:
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
        self._hashes = _resized(self._hashes, size)
        self._free = _resized(self._free, size)
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
            raise _no_key(given, row)
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
        size = max(_FIRST_SLOTS, _power_of_two(capacity))
        self._grow_slots(size)
        self._hashes[:capacity] = hashes
        self._free[: len(free)] = free
        live = capacity - len(free)
        self._state[[kernels.LIVE, kernels.NEXT, kernels.FREE]] = live, capacity, len(free)
        is_free = np.zeros(capacity, dtype=np.uint8)
        is_free[free] = 1
        self._table = _empty_table(max(2 * _FIRST_SLOTS, 2 * _power_of_two(live)))
        kernels.fill_table(self._hashes[:capacity], is_free, self._table)
        self._keys.load(saved, capacity, self._state)


def _empty_table(size: int) -> Int64s:
    return np.full(size, kernels.EMPTY, dtype=np.int64)


def _power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 0).bit_length()


def _resized(array: Array, size: int) -> Array:
    longer = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


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


def _no_key(slots: Slots, row: int) -> ValueError:
    return ValueError(f"slot {slots[row]} at row {row} holds no key")


def _fit_words(dtypes: Sequence[pl.DataType]) -> bool:
    wide = (pl.String, pl.Binary, pl.Categorical, pl.Enum, pl.Decimal)
    return len(dtypes) <= 8 and not any(isinstance(dtype, wide) for dtype in dtypes)


_Prepared: TypeAlias = tuple[Array, Array, Array]


class _Keys(Protocol):
    """The values of keys by slot: what the two forms have in common."""

    lengths: Array

    def prepare(self, parts: list[Part]) -> _Prepared: ...
    def look_up(
        self, keys: _Prepared, key_hashes: Hashes, row: int,
        table: Int64s, hashes: Hashes, free: Slots, state: Int64s, out: Slots, *, may_insert: bool,
    ) -> tuple[int, int]: ...  # fmt: skip
    def grow(self, size: int) -> None: ...
    def gather(self, slots: Slots, names: Sequence[str], end: int) -> list[pl.Series]: ...
    def save(self, capacity: int, state: Int64s) -> SavedKeys: ...
    def load(self, saved: Mapping[str, Array], capacity: int, state: Int64s) -> None: ...


class _WordKeys:
    """Keys as a matrix of words; a prepared batch is (words, nulls, unused)."""

    def __init__(self, dtypes: Sequence[pl.DataType]) -> None:
        self.dtypes = dtypes
        self.lengths = _NO_LENGTHS
        self.words = np.zeros((0, len(dtypes)), dtype=np.int64)
        self.nulls = np.zeros(0, dtype=np.uint8)
        self.saw_null = False

    def prepare(self, parts: list[Part]) -> _Prepared:
        words = [part for part in parts if isinstance(part, Words)]
        nulls = np.zeros(len(words[0].values), dtype=np.uint8)
        for j, part in enumerate(words):
            if part.has_nulls:
                self.saw_null = True
                nulls |= (1 - part.valid) << j
        if len(words) == 1:
            return words[0].values, read_only(nulls), nulls
        matrix = np.empty((len(nulls), len(words)), dtype=np.int64)
        for j, part in enumerate(words):
            matrix[:, j] = part.values
        return read_only(matrix), read_only(nulls), nulls

    def look_up(
        self, keys: _Prepared, key_hashes: Hashes, row: int,
        table: Int64s, hashes: Hashes, free: Slots, state: Int64s, out: Slots, *, may_insert: bool,
    ) -> tuple[int, int]:  # fmt: skip
        words, nulls, _ = keys
        if words.ndim == 1:
            return kernels.look_up_word(
                words, nulls, key_hashes, row, self.saw_null, may_insert,
                table, self.words.reshape(-1), self.nulls, hashes, free, state, out,
            )  # fmt: skip
        return kernels.look_up_words(
            words, nulls, key_hashes, row, may_insert, table, self.words, self.nulls, hashes, free, state, out
        )

    def grow(self, size: int) -> None:
        self.words = _resized(self.words, size)
        self.nulls = _resized(self.nulls, size)

    def gather(self, slots: Slots, names: Sequence[str], end: int) -> list[pl.Series]:
        return [self._column(j, slots, name, end) for j, name in enumerate(names)]

    def _column(self, j: int, slots: Slots, name: str, end: int) -> pl.Series:
        words = np.empty(len(slots), dtype=np.int64)
        valid = np.empty(len(slots) if self.saw_null else 0, dtype=np.uint8)
        bad = kernels.gather_words(slots, self.words, self.nulls, j, end, words, valid)
        if bad >= 0:
            raise _no_key(slots, bad)
        return _series_from_words(name, words, valid if self.saw_null else None, self.dtypes[j])

    def save(self, capacity: int, state: Int64s) -> SavedKeys:
        return {"words": self.words[:capacity], "nulls": self.nulls[:capacity]}

    def load(self, saved: Mapping[str, Array], capacity: int, state: Int64s) -> None:
        self.words[:capacity] = saved["words"]
        self.nulls[:capacity] = saved["nulls"]
        self.saw_null = bool(self.nulls.any())


def _series_from_words(name: str, words: Int64s, valid: Uint8s | None, dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Null):
        return pl.Series(name, pa.nulls(len(words)))
    if isinstance(dtype, (pl.Float16, pl.Float32, pl.Float64)):
        return series_from(name, words.view(np.float64), valid, dtype)
    return series_from(name, words, valid, dtype)


class _ByteKeys:
    """Keys as byte strings in an arena that is only written at its end, so that Series may share it.

    A prepared batch is (starts, lengths, data); the nulls of a key of several columns are in its bytes.
    """

    def __init__(self, dtypes: Sequence[pl.DataType]) -> None:
        self.dtypes = dtypes
        self.is_plain = len(dtypes) == 1 and not isinstance(dtypes[0], pl.Decimal)
        self.arena = np.empty(_FIRST_ARENA, dtype=np.uint8)
        self.starts = np.zeros(0, dtype=np.int64)
        self.lengths = np.zeros(0, dtype=np.int32)

    def prepare(self, parts: list[Part]) -> _Prepared:
        part = parts[0]
        if self.is_plain and isinstance(part, Bytes):
            lengths = np.diff(part.offsets)
            if part.has_nulls:
                lengths[part.valid == 0] = kernels.NULL
            return part.offsets, _checked(lengths), part.data
        offsets = np.zeros(len(part.valid) + 1, dtype=np.int64)
        for part in parts:
            _add_lengths(part, offsets[1:])
        lengths = offsets[1:].copy()
        np.cumsum(offsets, out=offsets)
        data = np.empty(offsets[-1], dtype=np.uint8)
        cursor = offsets[:-1].copy()
        for part in parts:
            _put(part, data, cursor)
        return read_only(offsets), _checked(lengths), read_only(data)

    def look_up(
        self, keys: _Prepared, key_hashes: Hashes, row: int,
        table: Int64s, hashes: Hashes, free: Slots, state: Int64s, out: Slots, *, may_insert: bool,
    ) -> tuple[int, int]:  # fmt: skip
        return kernels.look_up_bytes(
            *keys, key_hashes, row, may_insert, table, self.arena, self.starts, self.lengths, hashes, free, state, out
        )

    def grow(self, size: int) -> None:
        self.starts = _resized(self.starts, size)
        self.lengths = _resized(self.lengths, size)

    def grow_arena(self, needed: int, state: Int64s) -> None:
        """Move the living bytes to a new arena, half of which is free."""
        living = int(state[kernels.ARENA_END] - state[kernels.DEAD_BYTES])
        arena = np.empty(max(_FIRST_ARENA, _power_of_two(2 * (living + needed))), dtype=np.uint8)
        if state[kernels.DEAD_BYTES] == 0:
            arena[:living] = self.arena[:living]
        else:
            end = state[kernels.NEXT]
            state[kernels.ARENA_END] = kernels.pack_bytes(self.arena, self.starts[:end], self.lengths[:end], arena)
            state[kernels.DEAD_BYTES] = 0
        self.arena = arena

    def gather(self, slots: Slots, names: Sequence[str], end: int) -> list[pl.Series]:
        starts = np.empty(len(slots), dtype=np.int64)
        lengths = np.empty(len(slots), dtype=np.int32)
        bad = kernels.byte_ranges(slots, self.starts, self.lengths, end, starts, lengths)
        if bad >= 0:
            raise _no_key(slots, bad)
        if self.is_plain:
            return [self._byte_series(names[0], starts, lengths, self.dtypes[0])]
        return [self._column(starts, name, dtype) for name, dtype in zip(names, self.dtypes, strict=True)]

    def _column(self, cursor: Int64s, name: str, dtype: pl.DataType) -> pl.Series:
        """Read the next column of keys of several and leave the cursor behind it."""
        size = len(cursor)
        words = _words_of(dtype)
        out = np.zeros(words * size, dtype=np.int64)
        starts, lengths = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int32)
        kernels.take_column(self.arena, cursor, 8 * words, out.view(np.uint8), starts, lengths)
        if words == 0:
            return self._byte_series(name, starts, lengths, dtype)
        valid = _unless_all(lengths)
        if words == 2:
            return series_from(name, (out[1::2], out[::2]), valid, dtype)
        return _series_from_words(name, out, valid, dtype)

    def _byte_series(self, name: str, starts: Int64s, lengths: Array, dtype: pl.DataType) -> pl.Series:
        """Make a Series of views of the arena, or of a copy when it would keep a large arena alive."""
        valid = _unless_all(lengths)
        if valid is not None:
            np.maximum(lengths, 0, out=lengths)
        # Up to 12 bytes lie inside a view.
        point_outside = bool((lengths > 12).any())
        source = self.arena
        if point_outside:
            size = int(lengths.sum(dtype=np.int64))
            if 8 * size < len(source):
                source = np.empty(size, dtype=np.uint8)
                kernels.pack_bytes(self.arena, starts, lengths, source)
        views = np.zeros(4 * len(starts), dtype=np.int32)
        kernels.make_views(source, starts, lengths, kernels.BUFFER_SHIFT, views, views.view(np.uint8))
        buffers = _view_buffers(source) if point_outside else []
        validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        plain = pa.binary_view() if isinstance(dtype, pl.Binary) else pa.string_view()
        arrow = pa.Array.from_buffers(plain, len(starts), [validity, pa.py_buffer(views), *buffers])
        series = pl.Series(name, arrow)
        return series.cast(dtype) if isinstance(dtype, (pl.Categorical, pl.Enum)) else series

    def save(self, capacity: int, state: Int64s) -> SavedKeys:
        return {
            "arena": self.arena[: state[kernels.ARENA_END]],
            "starts": self.starts[:capacity],
            "lengths": self.lengths[:capacity],
        }

    def load(self, saved: Mapping[str, Array], capacity: int, state: Int64s) -> None:
        arena, lengths = saved["arena"], saved["lengths"]
        self.arena = np.empty(max(_FIRST_ARENA, _power_of_two(2 * len(arena))), dtype=np.uint8)
        self.arena[: len(arena)] = arena
        self.lengths[:capacity] = lengths
        self.starts[:capacity] = saved["starts"]
        state[kernels.ARENA_END] = len(arena)
        state[kernels.DEAD_BYTES] = len(arena) - int(np.maximum(lengths, 0).sum(dtype=np.int64))


def _unless_all(lengths: Array) -> Uint8s | None:
    """Return which lengths are those of values, or None when all are."""
    valid: Uint8s = (lengths >= 0).view(np.uint8)
    return None if valid.all() else valid


def _checked(lengths: Int64s) -> Int64s:
    longest = int(lengths.max(initial=0))
    if longest > kernels.LONGEST_KEY:
        raise OverflowError(f"a key of {longest} bytes is longer than {kernels.LONGEST_KEY} bytes")
    return read_only(lengths)


def _view_buffers(data: Uint8s) -> list[pa.Buffer]:
    """Return overlapping buffers, each twice as long as the distance between their beginnings."""
    step = 1 << kernels.BUFFER_SHIFT
    return [pa.py_buffer(data[start : start + 2 * step - 1]) for start in range(0, len(data), step)]


def _words_of(dtype: pl.DataType) -> int:
    """Return how many words a value of the type is; 0 for bytes of any number."""
    if isinstance(dtype, pl.Decimal):
        return 2
    return 0 if isinstance(dtype, (pl.String, pl.Binary, pl.Categorical, pl.Enum)) else 1


def _add_lengths(part: Part, ends: Int64s) -> None:
    """Add to each row's length: one byte for null or not, then the bytes of what is not null."""
    inner = 4 + np.diff(part.offsets) if isinstance(part, Bytes) else 16 if isinstance(part, Limbs) else 8
    ends += 1
    ends += inner * part.valid


def _put(part: Part, data: Uint8s, cursor: Int64s) -> None:
    if isinstance(part, Bytes):
        kernels.put_column(part.offsets, part.data, part.valid, 0, data, cursor)
        return
    if isinstance(part, Limbs):
        words, width = read_only(np.stack((part.low, part.high), axis=1).reshape(-1)), 16
    else:
        words, width = part.values, 8
    kernels.put_column(_NO_STARTS, words.view(np.uint8), part.valid, width, data, cursor)
