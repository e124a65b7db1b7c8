"""Values as int64 codes: what ordered folds keep in their multisets.

A code stands for a value and is ordered as the values are. Numbers, times and Booleans are their own code
(`WordCodes`). Anything else is interned: its code is the id of a byte string, and the multisets compare the
bytes. Text and binary are their own bytes (`TextCodes`); other types, and whole rows, are encoded by
`encode_rows`, and what belongs to an id is looked up in a store (`StoredCodes`, `RowCodes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from squill.engine.aggregation.interned import NOBODY, Interned
from squill.engine.aggregation.schedule import Array, Column
from squill.engine.arrow_form import sound
from squill.engine.batch import Batch
from squill.engine.belongs import at_slots
from squill.engine.buffers import grown
from squill.engine.columns import as_float64, as_int64, read_only, series_from, taken, valid_of
from squill.engine.kernels import fold_order as kernels
from squill.engine.multiset import float_codes, float_values, uint64_codes, uint64_values
from squill.engine.operator import OperatorState
from squill.engine.owned import owned
from squill.engine.row_order import as_binary, encode_rows

__all__ = ["Codes", "RowCodes", "StoredColumn", "codes_for", "list_series"]

SLACK = 65_536
"""How many dead stored rows are put up with before the store is compacted."""


class Codes(Protocol):
    """A two-way street between the values of one column and codes."""

    interned: Interned | None

    def encode(self, values: pl.Series) -> Column:
        """Return a code for each row that is not null, and the validity."""

    def decode(self, name: str, codes: Array, valid: Array) -> pl.Series:
        """Return the values of codes, null where not valid."""

    def keep_slots(self, kept: Array) -> Array | None:
        """Let all that holds codes forget all but these slots; return the codes' new numbers.

        None, and nobody is asked, where codes stand for themselves.
        """

    def settle(self) -> None: ...
    def save(self) -> OperatorState: ...
    def load(self, state: OperatorState) -> None: ...


def codes_for(dtype: pl.DataType) -> Codes:
    """Return the codes for values of this type."""
    if isinstance(dtype, (pl.String, pl.Binary, pl.Categorical)):
        return TextCodes(dtype)
    is_word = dtype.is_temporal() or dtype.is_float() or isinstance(dtype, (pl.Boolean, pl.Enum))
    is_wide = isinstance(dtype, (pl.Int128, pl.UInt128))
    return WordCodes(dtype) if is_word or (dtype.is_integer() and not is_wide) else StoredCodes(dtype)


class WordCodes:
    """Types whose values fit one word."""

    def __init__(self, dtype: pl.DataType) -> None:
        self.interned: Interned | None = None
        self._dtype = dtype

    def encode(self, values: pl.Series) -> Column:
        if self._dtype.is_float():
            floats, valid = as_float64(values)
            return float_codes(floats), valid
        if isinstance(self._dtype, pl.Enum):
            return as_int64(values.to_physical())
        words, valid = as_int64(values)
        return (uint64_codes(words.view(np.uint64)) if isinstance(self._dtype, pl.UInt64) else words), valid

    def decode(self, name: str, codes: Array, valid: Array) -> pl.Series:
        if isinstance(self._dtype, pl.Enum):
            category = series_from(name, codes, valid, pl.Int64())
            names = pl.DataFrame({name: self._dtype.categories}).select(pl.col(name).gather(category))
            return names.to_series().cast(self._dtype)
        physical: Array = codes
        if self._dtype.is_float():
            physical = float_values(codes)
        elif isinstance(self._dtype, pl.UInt64):
            physical = uint64_values(codes)
        return series_from(name, physical, None if valid.all() else valid, self._dtype)

    def keep_slots(self, kept: Array) -> Array | None:
        return None

    def settle(self) -> None:
        pass

    def save(self) -> OperatorState:
        return {}

    def load(self, state: OperatorState) -> None:
        pass


class TextCodes:
    """Text and binary: an id for each different value."""

    def __init__(self, dtype: pl.DataType) -> None:
        self.interned: Interned | None = Interned(dtype)
        self._ids = self.interned
        self._dtype = dtype

    def encode(self, values: pl.Series) -> Column:
        return _present(values, self._ids.ids)

    def decode(self, name: str, codes: Array, valid: Array) -> pl.Series:
        if valid.all():
            return self._ids.table.gather(codes, [name])[0]
        # Another slot's null row cannot be asked for: gather what is there, then spread it.
        there = self._ids.table.gather(codes[valid.view(np.bool_)], [name])[0]
        return _spread(there, valid)

    def keep_slots(self, kept: Array) -> Array | None:
        self._ids.keep_slots(kept)
        return self._ids.number_of

    def settle(self) -> None:
        self._ids.settle()

    def save(self) -> OperatorState:
        return self._ids.save()

    def load(self, state: OperatorState) -> None:
        self._ids.load(state)


def _present(values: pl.Series, ids_of: IdsOf) -> Column:
    """Return the ids of the rows that are not null."""
    valid = valid_of(values)
    if values.null_count() == 0:
        return ids_of(values).astype(np.int64), valid
    ids = np.zeros(len(values), np.int64)
    ids[valid.view(np.bool_)] = ids_of(values.drop_nulls())
    return ids, valid


class IdsOf(Protocol):
    def __call__(self, column: pl.Series, /) -> Array: ...


def _spread(values: pl.Series, valid: Array) -> pl.Series:
    """Return the values at the valid rows, in order, and nulls at the others."""
    places = series_from("", np.cumsum(valid, dtype=np.int64) - 1, valid, pl.Int64())
    return values.to_frame().select(pl.first().gather(places)).to_series()


def _taken(values: pl.Series, rows: Array) -> pl.Series:
    return taken({"": values}, rows)[""]


class StoredColumn:
    """A column of rows that are only appended; row 0 is null.

    Pieces are merged when the one before is not larger, so there are few and appending is cheap.
    """

    def __init__(self, dtype: pl.DataType) -> None:
        self._dtype = dtype
        self._pieces = [pl.Series("", [None], dtype)]

    def append(self, values: pl.Series) -> None:
        piece = values.alias("")
        while self._pieces and len(self._pieces[-1]) <= len(piece):
            piece = pl.concat([self._pieces.pop(), piece], rechunk=True)
        if len(piece):
            self._pieces.append(piece)

    def gather(self, rows: Array, name: str = "") -> pl.Series:
        return _taken(pl.concat(self._pieces, rechunk=False), rows).alias(name)

    def keep(self, rows: Array) -> None:
        """Become the null row and these rows."""
        self._pieces = [self.gather(np.concatenate([np.zeros(1, np.int64), rows])).rechunk()]

    def save(self) -> list[pl.Series]:
        return list(self._pieces)

    def load(self, saved: list[pl.Series]) -> None:
        self._pieces = list(saved)


class Stored:
    """What belongs to ids: a place for each, and columns by place."""

    def __init__(self) -> None:
        self.columns: list[StoredColumn] = []
        self._places = np.zeros(16, np.int64)
        self._rows = 1
        self._live = 0

    def place(self, ids: Array, capacity: int) -> Array:
        """Return the first row of each new id; the columns must be given these rows."""
        self._places = grown(self._places, capacity)
        rows = np.empty(len(ids), np.int64)
        count = kernels.new_ids(read_only(ids), self._places, self._rows, rows)
        self._rows += count
        self._live += count
        return rows[:count]

    def rows(self, ids: Array, valid: Array | None = None) -> Array:
        """Return where the ids lie in the columns; 0 where not valid."""
        places = self._places[ids]
        return places if valid is None else places * valid

    def forget(self, ids: Array) -> None:
        self._places[ids] = 0
        self._live -= len(ids)
        if self._rows > 2 * self._live + SLACK:
            living = np.flatnonzero(self._places)
            self._keep_rows(self._places[living])
            self._places[living] = np.arange(1, len(living) + 1)

    def keep(self, ids: Array) -> None:
        """Forget all but these ids, of which the i-th is id i from now on."""
        self._keep_rows(self._places[ids])
        self._places = grown(np.arange(1, len(ids) + 1), 16)
        self._live = len(ids)

    def _keep_rows(self, rows: Array) -> None:
        for column in self.columns:
            column.keep(rows)
        self._rows = len(rows) + 1

    def save(self) -> OperatorState:
        columns = [column.save() for column in self.columns]
        return {"places": self._places, "rows": self._rows, "live": self._live, "columns": columns}

    def load(self, state: OperatorState) -> None:
        self._places = owned(state["places"])
        self._rows, self._live = state["rows"], state["live"]
        for column, saved in zip(self.columns, state["columns"], strict=True):
            column.load(saved)


class StoredCodes:
    """Any other ordered type: ids of encoded values, the values in a store."""

    def __init__(self, dtype: pl.DataType) -> None:
        self.interned: Interned | None = Interned(pl.Binary())
        self._ids = self.interned
        self._store = Stored()
        self._column = StoredColumn(dtype)
        self._store.columns.append(self._column)

    def encode(self, values: pl.Series) -> Column:
        return _present(values, self._new_ids)

    def _new_ids(self, values: pl.Series) -> Array:
        ids = self._ids.ids(as_binary(*encode_rows([values])))
        self._column.append(values.gather(self._store.place(ids, self._ids.table.capacity)))
        return ids

    def decode(self, name: str, codes: Array, valid: Array) -> pl.Series:
        return self._column.gather(self._store.rows(codes, valid), name)

    def keep_slots(self, kept: Array) -> Array | None:
        self._store.keep(self._ids.keep_slots(kept))
        return self._ids.number_of

    def settle(self) -> None:
        gone = self._ids.settle()
        if len(gone):
            self._store.forget(gone)

    def save(self) -> OperatorState:
        return {"ids": self._ids.save(), "store": self._store.save()}

    def load(self, state: OperatorState) -> None:
        self._ids.load(state["ids"])
        self._store.load(state["store"])


class RowCodes:
    """Whole rows, ordered by some leading columns, then the payload; columns of the rows in a store.

    Several folds may share one: its owner calls `take` once per batch, then each adds its own column.
    """

    def __init__(self, payload: Sequence[str]) -> None:
        self.interned = Interned(pl.Binary())
        self.prefixes = np.zeros(16, np.int64)
        self._payload = tuple(payload)
        self._store = Stored()
        self._fresh = NOBODY
        self._current = NOBODY

    def column(self, dtype: pl.DataType) -> StoredColumn:
        """Return a new column, to be appended to after every `take`."""
        column = StoredColumn(dtype)
        self._store.columns.append(column)
        return column

    def take(
        self,
        batch: Batch,
        leading: Sequence[pl.Series],
        *,
        descending: bool = False,
        trailing: Sequence[pl.Series] = (),
    ) -> Array:
        """Return the code of each row; the first leading column may be descending."""
        columns = [*leading, *(batch.columns[name] for name in self._payload), *trailing]
        flags = [descending, *(False for _ in columns[1:])]
        self._current = self.interned.ids(as_binary(*encode_rows(columns, flags)))
        self._fresh = self._store.place(self._current, self.interned.table.capacity)
        return self._current

    def set_prefixes(self, leading: pl.Series) -> None:
        """Keep how many bytes of the rows just taken their first column has."""
        self.prefixes = grown(self.prefixes, self.interned.table.capacity)
        fresh = _taken(leading, self._fresh)
        self.prefixes[self._current[self._fresh]] = np.diff(encode_rows([fresh])[0])

    def add(self, column: StoredColumn, values: pl.Series) -> None:
        """Store the values of the rows just taken that are new."""
        column.append(_taken(values, self._fresh))

    @property
    def codes(self) -> Array:
        """The codes of the rows just taken."""
        return self._current.astype(np.int64)

    def gather(self, column: StoredColumn, codes: Array, valid: Array | None = None, name: str = "") -> pl.Series:
        return column.gather(self._store.rows(codes, valid), name)

    def keep_slots(self, kept: Array) -> None:
        """Let all that holds codes forget all but these slots; `number_of` has the codes' new numbers."""
        self.prefixes = grown(self.prefixes, self.interned.table.capacity)
        ids = self.interned.keep_slots(kept)
        self._store.keep(ids)
        self.prefixes = at_slots(self.prefixes, ids)
        self._fresh = self._current = NOBODY

    @property
    def number_of(self) -> Array:
        return self.interned.number_of

    def settle(self) -> None:
        gone = self.interned.settle()
        if len(gone):
            self._store.forget(gone)

    def save(self) -> OperatorState:
        return {"ids": self.interned.save(), "store": self._store.save(), "prefixes": self.prefixes}

    def load(self, state: OperatorState) -> None:
        self.interned.load(state["ids"])
        self._store.load(state["store"])
        self.prefixes = owned(state["prefixes"])


def list_series(name: str, offsets: Array, values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return lists: list i is ``values[offsets[i] : offsets[i + 1]]``."""
    try:
        arrow = sound(values.rechunk().to_arrow(compat_level=pl.CompatLevel.newest()))
    except pa.ArrowInvalid:  # a type that Arrow does not have, as 128-bit integers
        return _grouped_lists(name, offsets, values).cast(dtype)
    lists = pl.Series(name, pa.LargeListArray.from_arrays(pa.array(offsets), arrow))
    return lists if lists.dtype == dtype else lists.cast(dtype)


def _grouped_lists(name: str, offsets: Array, values: pl.Series) -> pl.Series:
    sizes = np.diff(offsets)
    owner = pl.Series("owner", np.repeat(np.arange(len(sizes)), sizes))
    lists = pl.DataFrame([owner, values.alias(name)]).group_by("owner", maintain_order=True).agg(name)
    every = pl.DataFrame({"owner": np.arange(len(sizes))}).join(lists, on="owner", how="left", maintain_order="left")
    return every.get_column(name).fill_null([])
