"""A state as JSON and arrays, and back.

A state is what `Operator.save` returns: dicts, lists and tuples of arrays, Series, frames, batches, numbers, dates
and text.
Its shape becomes JSON; arrays and Series go to a `Writer` under the path on which they were found; the rows of
batches, which never change, go to it as rows. Whatever else is found is a bug of the operator that saved it.
Reading a tree runs no code that the file names.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.owned import offer
from squill.engine.state.columns import column_parts, dtype_from_text, dtype_to_text, series_from_parts
from squill.errors import InternalError
from squill.time import INFINITY
from squill.wording import kind_of

__all__ = ["Reader", "Writer", "decode", "encode"]

Array = npt.NDArray[Any]
Json = Any
KIND = "$"
MANY = 64
"""From here on a list of like values is an array, not JSON."""


class Writer(Protocol):
    """Where arrays go."""

    def array(self, path: str, array: Array) -> None:
        """Keep an array that may be another the next time."""

    def rows(self, column: pl.Series | Array) -> list[int]:
        """Keep rows that never change; return the number of a chunk and the first and last row in it."""


class Reader(Protocol):
    """Where arrays come from."""

    def array(self, path: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array: ...
    def rows(self, place: Sequence[int]) -> pl.Series | Array: ...


def encode(state: object, writer: Writer) -> Json:
    """Return the shape of the state as JSON values; its arrays are given to the writer."""
    return _Encoder(writer).value(state, "")


def decode(tree: Json, reader: Reader) -> Any:
    """Return the state that `encode` was given."""
    return _Decoder(reader).value(tree, "")


def _below(path: str, key: object) -> str:
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


class _Encoder:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def value(self, value: Any, path: str) -> Json:
        if value is None or type(value) in (bool, int, float, str):
            return value
        for kind, encoded in _ENCODERS:
            if isinstance(value, kind):
                return encoded(self, value, path)
        raise InternalError(f"the state of {path.strip('/')} holds {kind_of(value)}, which cannot be saved")

    def array(self, value: Array, path: str) -> Json:
        if value.dtype.hasobject:
            raise InternalError(f"the state of {path.strip('/')} holds an array of Python objects")
        self._writer.array(path, value)
        return {KIND: "array", "dtype": value.dtype.str, "shape": list(value.shape)}

    def scalar(self, value: np.generic, path: str) -> Json:
        return {KIND: "scalar", "dtype": value.dtype.str, "value": base64.b64encode(value.tobytes()).decode()}

    def a_bytes(self, value: bytes, path: str) -> Json:
        return {KIND: "bytes", "value": base64.b64encode(value).decode()}

    def a_range(self, value: range, path: str) -> Json:
        return {KIND: "range", "value": [value.start, value.stop, value.step]}

    def a_tuple(self, value: tuple[Any, ...], path: str) -> Json:
        return {KIND: "tuple", "items": self.a_list(value, path)}

    def a_list(self, value: Sequence[Any], path: str) -> Json:
        packed = self._packed(value, path) if len(value) >= MANY else None
        if packed is not None:
            return packed
        return [self.value(item, _below(path, i)) for i, item in enumerate(value)]

    def _packed(self, value: Sequence[Any], path: str) -> Json | None:
        """Return many like values as columns, None when they are not alike."""
        kinds = {type(item) for item in value}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is tuple and len({len(item) for item in value}) == 1 and value[0]:
            columns = [self.a_list(column, _below(path, i)) for i, column in enumerate(zip(*value, strict=True))]
            return {KIND: "rows", "columns": columns}
        if kind is int and min(value) >= -(2**63) and max(value) < 2**63:
            return {KIND: "values", "series": self.series(pl.Series(value, dtype=pl.Int64), path)}
        if kind in (float, str, bytes):
            return {KIND: "values", "series": self.series(pl.Series(value), path)}
        return None

    def a_dict(self, value: Mapping[Any, Any], path: str) -> Json:
        if all(type(key) is str for key in value) and KIND not in value:
            return {key: self.value(item, _below(path, key)) for key, item in value.items()}
        keys = self.a_list(list(value), _below(path, "keys"))
        return {KIND: "dict", "keys": keys, "values": self.a_list(list(value.values()), _below(path, "values"))}

    def series(self, value: pl.Series, path: str) -> Json:
        try:
            parts = column_parts(value)
        except TypeError as error:
            raise InternalError(f"the state of {path.strip('/')}: {error}") from error
        encoded = {name: self.array(part, _below(path, name)) for name, part in parts.items()}
        return {
            KIND: "series", "name": value.name, "dtype": dtype_to_text(value.dtype), "size": len(value),
            "parts": encoded,
        }  # fmt: skip

    def moment(self, value: Any, path: str) -> Json:
        """Dates, times and Decimals lie in a column of one row, which knows them all."""
        return {KIND: "moment", "series": self.series(pl.Series([value]), path)}

    def frame(self, value: pl.DataFrame, path: str) -> Json:
        return {KIND: "frame", "height": value.height, "columns": self.a_list(value.get_columns(), path)}

    def batch(self, value: Batch, path: str) -> Json:
        columns = {}
        for name, column in value.columns.items():
            try:
                columns[name] = self._writer.rows(column)
            except TypeError as error:
                raise InternalError(f"the state of {path.strip('/')}: column {name!r}: {error}") from error
        encoded = {KIND: "batch", "size": len(value), "columns": columns}
        if value.is_timeless:
            return {**encoded, "timeless": True}
        ids = value.ids
        return {
            **encoded,
            "sync": self._writer.rows(value.sync),
            "other": self._ends(value),
            "ids": self._writer.rows(ids) if isinstance(ids, np.ndarray) else self.value(ids, path),
            "ordered": value.is_ordered,
        }

    def _ends(self, value: Batch) -> Json:
        if value.duration is not None:
            return value.duration
        # The ends of start edges lie in an array that everybody shares: they need no place in the file.
        endless = len(value) > 0 and value.other[0] == INFINITY and bool((value.other == INFINITY).all())
        return INFINITY if endless else self._writer.rows(value.other)


_ENCODERS: tuple[tuple[type, Callable[[_Encoder, Any, str], Json]], ...] = (
    (np.ndarray, _Encoder.array),
    (np.generic, _Encoder.scalar),
    (pl.Series, _Encoder.series),
    (Batch, _Encoder.batch),
    (dict, _Encoder.a_dict),
    (tuple, _Encoder.a_tuple),
    (list, _Encoder.a_list),
    (bytes, _Encoder.a_bytes),
    (range, _Encoder.a_range),
    (pl.DataFrame, _Encoder.frame),
    *((kind, _Encoder.moment) for kind in (dt.date, dt.time, dt.timedelta, decimal.Decimal)),
)


class _Decoder:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def value(self, tree: Json, path: str) -> Any:
        if isinstance(tree, list):
            return [self.value(item, _below(path, i)) for i, item in enumerate(tree)]
        if not isinstance(tree, dict):
            return tree
        kind = tree.get(KIND)
        if kind is None:
            return {key: self.value(item, _below(path, key)) for key, item in tree.items()}
        return _DECODERS[kind](self, tree, path)

    def array(self, tree: Json, path: str) -> Array:
        return self._reader.array(path, np.dtype(tree["dtype"]), tuple(tree["shape"]))

    def a_whole_array(self, tree: Json, path: str) -> Array:
        array = self.array(tree, path)
        offer(array)
        return array

    def scalar(self, tree: Json, path: str) -> Any:
        return np.frombuffer(base64.b64decode(tree["value"]), np.dtype(tree["dtype"]))[0]

    def a_bytes(self, tree: Json, path: str) -> bytes:
        return base64.b64decode(tree["value"])

    def a_range(self, tree: Json, path: str) -> range:
        return range(*tree["value"])

    def a_tuple(self, tree: Json, path: str) -> tuple[Any, ...]:
        return tuple(self.value(tree["items"], path))

    def rows(self, tree: Json, path: str) -> list[tuple[Any, ...]]:
        columns = [self.value(column, _below(path, i)) for i, column in enumerate(tree["columns"])]
        return list(zip(*columns, strict=True))

    def values(self, tree: Json, path: str) -> list[Any]:
        return list(self.series(tree["series"], path).to_list())

    def a_dict(self, tree: Json, path: str) -> dict[Any, Any]:
        keys = self.value(tree["keys"], _below(path, "keys"))
        return dict(zip(keys, self.value(tree["values"], _below(path, "values")), strict=True))

    def series(self, tree: Json, path: str) -> pl.Series:
        parts = {name: self.array(part, _below(path, name)) for name, part in tree["parts"].items()}
        return series_from_parts(tree["name"], dtype_from_text(tree["dtype"]), tree["size"], parts)

    def moment(self, tree: Json, path: str) -> Any:
        return self.series(tree["series"], path).to_list()[0]

    def frame(self, tree: Json, path: str) -> pl.DataFrame:
        columns = self.value(tree["columns"], path)
        return pl.DataFrame(columns) if columns else pl.DataFrame(height=tree["height"])

    def batch(self, tree: Json, path: str) -> Batch:
        columns: Any = {name: self._reader.rows(rows) for name, rows in tree["columns"].items()}
        columns = {name: column.alias(name) for name, column in columns.items()}
        if tree.get("timeless"):
            return Batch.relational(columns, tree["size"])
        other, ids = tree["other"], tree["ids"]
        sync: Any = self._reader.rows(tree["sync"])
        ends: Any = other if isinstance(other, int) else self._reader.rows(other)
        numbers: Any = self._reader.rows(ids) if isinstance(ids, list) else self.value(ids, path)
        batch = Batch(sync, ends, columns, numbers)
        batch.is_ordered = tree["ordered"]
        return batch


_DECODERS: Mapping[str, Callable[[_Decoder, Json, str], Any]] = {
    "array": _Decoder.a_whole_array,
    "scalar": _Decoder.scalar,
    "series": _Decoder.series,
    "batch": _Decoder.batch,
    "dict": _Decoder.a_dict,
    "tuple": _Decoder.a_tuple,
    "rows": _Decoder.rows,
    "values": _Decoder.values,
    "bytes": _Decoder.a_bytes,
    "range": _Decoder.a_range,
    "frame": _Decoder.frame,
    "moment": _Decoder.moment,
}
