"""The values of keys by slot, which tell whether a key in a table is the one that is looked for, in two forms.

- *words*: every column fits one 64-bit word, at most 8 columns: a matrix of words and a bit mask of nulls;
- *bytes*: any other key, as one byte string in an arena. A single String or Binary column is its own bytes,
  so a table of one Binary column serves as an interner of byte strings. Several columns are written one
  after the other so that different keys give different strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from squill.engine.columns import Array, Int64s, Uint8s, read_only, series_from
from squill.engine.hashing import Bytes, Hashes, Limbs, Part, Words
from squill.engine.kernels import key_table as kernels
from squill.engine.large_arrays import large_array

__all__ = [
    "ByteKeys",
    "Keys",
    "Prepared",
    "SavedKeys",
    "Slots",
    "WordKeys",
    "fit_words",
    "no_key",
    "power_of_two",
    "resized",
]

Slots: TypeAlias = npt.NDArray[np.int32]
SavedKeys: TypeAlias = dict[str, Array]

_FIRST_ARENA = 4096
_NO_LENGTHS = np.empty(0, dtype=np.int32)
_NO_STARTS = read_only(np.empty(0, dtype=np.int64))


def power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 0).bit_length()


def resized(array: Array, size: int) -> Array:
    longer = large_array((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    longer[len(array) :] = 0
    return longer


def no_key(slots: Slots, row: int) -> ValueError:
    return ValueError(f"slot {slots[row]} at row {row} holds no key")


def fit_words(dtypes: Sequence[pl.DataType]) -> bool:
    wide = (pl.String, pl.Binary, pl.Categorical, pl.Enum, pl.Decimal)
    return len(dtypes) <= 8 and not any(isinstance(dtype, wide) for dtype in dtypes)


Prepared: TypeAlias = tuple[Array, Array, Array]


class Keys(Protocol):
    """The values of keys by slot: what the two forms have in common."""

    lengths: Array

    def prepare(self, parts: list[Part]) -> Prepared: ...
    def look_up(
        self, keys: Prepared, key_hashes: Hashes, row: int,
        table: Int64s, hashes: Hashes, free: Slots, state: Int64s, out: Slots, *, may_insert: bool,
    ) -> tuple[int, int]: ...  # fmt: skip
    def grow(self, size: int) -> None: ...
    def gather(self, slots: Slots, names: Sequence[str], end: int) -> list[pl.Series]: ...
    def save(self, capacity: int, state: Int64s) -> SavedKeys: ...
    def load(self, saved: Mapping[str, Array], capacity: int, state: Int64s) -> None: ...


class WordKeys:
    """Keys as a matrix of words; a prepared batch is (words, nulls, unused)."""

    def __init__(self, dtypes: Sequence[pl.DataType]) -> None:
        self.dtypes = dtypes
        self.lengths = _NO_LENGTHS
        self.words = np.zeros((0, len(dtypes)), dtype=np.int64)
        self.nulls = np.zeros(0, dtype=np.uint8)
        self.saw_null = False

    def prepare(self, parts: list[Part]) -> Prepared:
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
        self, keys: Prepared, key_hashes: Hashes, row: int,
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
        self.words = resized(self.words, size)
        self.nulls = resized(self.nulls, size)

    def gather(self, slots: Slots, names: Sequence[str], end: int) -> list[pl.Series]:
        return [self._column(j, slots, name, end) for j, name in enumerate(names)]

    def _column(self, j: int, slots: Slots, name: str, end: int) -> pl.Series:
        words = np.empty(len(slots), dtype=np.int64)
        valid = np.empty(len(slots) if self.saw_null else 0, dtype=np.uint8)
        bad = kernels.gather_words(slots, self.words, self.nulls, j, end, words, valid)
        if bad >= 0:
            raise no_key(slots, bad)
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


class ByteKeys:
    """Keys as byte strings in an arena that is only written at its end, so that Series may share it.

    A prepared batch is (starts, lengths, data); the nulls of a key of several columns are in its bytes.
    """

    def __init__(self, dtypes: Sequence[pl.DataType]) -> None:
        self.dtypes = dtypes
        self.is_plain = len(dtypes) == 1 and not isinstance(dtypes[0], pl.Decimal)
        self.arena = np.empty(_FIRST_ARENA, dtype=np.uint8)
        self.starts = np.zeros(0, dtype=np.int64)
        self.lengths = np.zeros(0, dtype=np.int32)

    def prepare(self, parts: list[Part]) -> Prepared:
        part = parts[0]
        if self.is_plain and isinstance(part, Bytes):
            lengths = np.where(part.valid, part.lengths, kernels.NULL) if part.has_nulls else part.lengths
            return part.starts, _checked(lengths), part.data
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
        self, keys: Prepared, key_hashes: Hashes, row: int,
        table: Int64s, hashes: Hashes, free: Slots, state: Int64s, out: Slots, *, may_insert: bool,
    ) -> tuple[int, int]:  # fmt: skip
        return kernels.look_up_bytes(
            *keys, key_hashes, row, may_insert, table, self.arena, self.starts, self.lengths, hashes, free, state, out
        )

    def grow(self, size: int) -> None:
        self.starts = resized(self.starts, size)
        self.lengths = resized(self.lengths, size)

    def grow_arena(self, needed: int, state: Int64s) -> None:
        """Move the living bytes to a new arena, half of which is free."""
        living = int(state[kernels.ARENA_END] - state[kernels.DEAD_BYTES])
        arena = large_array(max(_FIRST_ARENA, power_of_two(2 * (living + needed))), np.uint8)
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
            raise no_key(slots, bad)
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
        self.arena = np.empty(max(_FIRST_ARENA, power_of_two(2 * len(arena))), dtype=np.uint8)
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
    inner = 4 + part.lengths if isinstance(part, Bytes) else 16 if isinstance(part, Limbs) else 8
    ends += 1
    ends += inner * part.valid


def _put(part: Part, data: Uint8s, cursor: Int64s) -> None:
    if isinstance(part, Bytes):
        kernels.put_column(part.starts, part.lengths, part.data, part.valid, 0, data, cursor)
        return
    if isinstance(part, Limbs):
        words, width = read_only(np.stack((part.low, part.high), axis=1).reshape(-1)), 16
    else:
        words, width = part.values, 8
    kernels.put_column(_NO_STARTS, _NO_STARTS, words.view(np.uint8), part.valid, width, data, cursor)
