"""Lists that are all empty, as Polars leaves them when their values are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import squill as sq
from squill.engine.arrow_form import arrow_array, arrow_table, sound
from squill.engine.batch import Batch
from squill.exchange.codec import decode, encode
from squill.plan.schema import Schema

INTS = pa.int64()


def beyond(kind: pa.DataType, children: list[pa.Array] | None = None) -> pa.Array:
    """No rows, from beyond the end of no bytes."""
    return pa.Array.from_buffers(kind, 0, [None] * kind.num_buffers, 0, 4, children)


def empty_lists(values: pa.Array) -> pa.Array:
    """Two empty lists of such values."""
    return pa.Array.from_buffers(pa.large_list(values.type), 2, [None, pa.py_buffer(bytes(24))], 0, 0, [values])


TORN: dict[str, tuple[pa.Array, list[Any]]] = {
    "numbers": (empty_lists(beyond(INTS)), [[], []]),
    "Booleans": (empty_lists(beyond(pa.bool_())), [[], []]),
    "lists": (empty_lists(beyond(pa.large_list(INTS), [pa.array([], INTS)])), [[], []]),
    "in a struct": (pa.StructArray.from_arrays([empty_lists(beyond(INTS))], ["q"]), [{"q": []}, {"q": []}]),
    "in a struct with nulls": (
        pa.StructArray.from_arrays([empty_lists(beyond(INTS))], ["q"], mask=pa.array([True, False])),
        [None, {"q": []}],
    ),
    "structs of them": (empty_lists(pa.StructArray.from_arrays([beyond(INTS)], ["a"])), [[], []]),
    "in lists": (
        pa.LargeListArray.from_arrays(pa.array([0, 1, 2], INTS), empty_lists(pa.array([], INTS))),
        [[[]], [[]]],
    ),
}


@pytest.mark.parametrize("name", TORN)
def test_sound_arrays_are_written_and_read(name: str) -> None:
    torn, expected = TORN[name]
    sink = pa.BufferOutputStream()
    record = pa.record_batch({"c": sound(torn)})
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    read = pa.ipc.open_stream(sink.getvalue()).read_next_batch().column(0)
    read.validate(full=True)
    assert read.to_pylist() == sound(torn).to_pylist() == expected


def test_sound_array_is_left_as_it_is() -> None:
    for values in ([[1], [], None], [{"a": [1]}, None], [1, 2], []):
        array = pa.array(values)
        assert sound(array) is array


NESTED: dict[str, tuple[pl.DataType, Any]] = {
    "numbers": (pl.List(pl.Int64()), 1),
    "text": (pl.List(pl.String()), "a longer text"),
    "structs": (pl.List(pl.Struct({"a": pl.Int64(), "b": pl.String()})), {"a": 1, "b": "x"}),
    "lists": (pl.List(pl.List(pl.Int64())), [1]),
}


def torn_lists(name: str) -> pl.Series:
    """What Polars makes of the rows of several chunks, when these are empty and others were not."""
    dtype, value = NESTED[name]
    chunks = [pl.Series("c", values, dtype) for values in ([None], [[value, value], [], [None, value], []])]
    return pl.concat(chunks, rechunk=False).gather([2, 4])


@pytest.mark.parametrize("name", NESTED)
def test_torn_lists_travel_and_are_stored(name: str, tmp_path: Path) -> None:
    torn = torn_lists(name)
    assert arrow_array(torn).to_pylist() == [[], []]
    rows = Batch(np.arange(2), np.arange(2) + 1, {"c": torn})
    assert decode(encode(rows), Schema({"c": torn.dtype})).columns["c"].to_list() == [[], []]
    for suffix, table in (("arrow", arrow_table(torn.to_frame())), ("parquet", arrow_table(torn.to_frame()))):
        path = tmp_path / f"a.{suffix}"
        _ = pq.write_table(table, path) if suffix == "parquet" else pa.feather.write_feather(table, path)
        assert sq.scan(path).collect()["c"].to_list() == [[], []]


def test_empty_lists_of_a_key_cross_and_are_written(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [1, 0, 1, 2] * 5, "c": pl.Series([[1, 2], [], [None, 3], []] * 5)})
    first = sq.from_frame(pl.concat([frame, frame])).where(sq.col("k") != 1).group_aggregate("k", a=sq.first("c"))
    expected: list[tuple[int, list[int]]] = [(0, []), (2, [])]
    assert first.collect(sort=True).rows() == expected
    for write, suffix in (("to_ipc", "arrow"), ("to_parquet", "parquet")):
        getattr(first, write)(tmp_path / f"a.{suffix}")
        assert sq.scan(tmp_path / f"a.{suffix}").collect(sort=True).rows() == expected


def test_no_rows_of_an_enum_are_sound() -> None:
    # Arrow has no builder of dictionaries of views, which is what an enum is.
    nested = pl.Series([{"x": "a"}], dtype=pl.Struct({"x": pl.Enum(["a", "b"])}))
    array = nested.to_arrow(compat_level=pl.CompatLevel.newest()).slice(1)
    assert len(sound(array)) == 0
    assert sound(array).type == array.type
