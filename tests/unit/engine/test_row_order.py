"""Encoded rows compare as the rows do: against Python's order of tuples, with nulls first and NaN last."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.row_order import as_binary, encode_rows, sort_permutation

UTC = dt.UTC
MINUTE = dt.timedelta(minutes=1)

# For each type, values in ascending order; neighbours differ.
ASCENDING: dict[str, tuple[Any, list[Any]]] = {
    "Int8": (pl.Int8, [None, -128, -1, 0, 1, 127]),
    "Int32": (pl.Int32, [None, -(2**31), -256, -255, 0, 255, 256, 2**31 - 1]),
    "Int64": (pl.Int64, [None, -(2**63), -1, 0, 1, 2**63 - 1]),
    "Int128": (pl.Int128, [None, -(2**127), -(2**64) - 1, -(2**64), -1, 0, 1, 2**63, 2**64, 2**127 - 1]),
    "UInt8": (pl.UInt8, [None, 0, 1, 127, 128, 255]),
    "UInt64": (pl.UInt64, [None, 0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "UInt128": (pl.UInt128, [None, 0, 1, 2**64 - 1, 2**64, 2**127, 2**128 - 1]),
    "Float32": (pl.Float32, [None, -math.inf, -1.5, -1e-45, 0.0, 1e-45, 1.5, math.inf, math.nan]),
    "Float64": (pl.Float64, [None, -math.inf, -1e300, -5e-324, 0.0, 5e-324, 1.5, 1e300, math.inf, math.nan]),
    "Boolean": (pl.Boolean, [None, False, True]),
    "Date": (
        pl.Date,
        [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 1, 1)],
    ),
    "Time": (pl.Time, [None, dt.time(0), dt.time(0, 0, 0, 1), dt.time(23, 59)]),
    "Datetime": (
        pl.Datetime("us"),
        [None, dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1)],
    ),
    "Datetime with a zone": (
        pl.Datetime("ms", "UTC"),
        [None, dt.datetime(1960, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC)],
    ),
    "Duration": (pl.Duration("us"), [None, -MINUTE, 0 * MINUTE, MINUTE]),
    "Decimal": (
        pl.Decimal(38, 2),
        [
            None,
            *map(decimal.Decimal, ["-1e30", "-184467440737095516.17", "-0.01", "0", "0.01", "1e17", "1e30"]),
        ],
    ),
    "String": (
        pl.String,
        [None, "", "\0", "\0\0", "\0a", "\x01", "a", "a\0", "a\0b", "aa", "b", "é", "\U0010ffff"],
    ),
    "Binary": (pl.Binary, [None, b"", b"\0", b"\0\0", b"\0\xff", b"\x01", b"\xfe\xff", b"\xff", b"\xff\0"]),
    "Categorical": (pl.Categorical, [None, "", "alpha", "beta", "beta2"]),
    "Enum": (pl.Enum(["z", "a", "m"]), [None, "z", "a", "m"]),
    "Null": (pl.Null, [None]),
    "Struct": (
        pl.Struct({"x": pl.Int64, "y": pl.String}),
        [
            None,
            {"x": None, "y": None},
            {"x": None, "y": "a"},
            {"x": -1, "y": "z"},
            {"x": 1, "y": None},
            {"x": 1, "y": ""},
        ],
    ),
    "List": (pl.List(pl.Int64), [None, [], [None], [None, 5], [-1], [-1, 2], [-1, 2, None], [3]]),
    "List of text": (
        pl.List(pl.String),
        [None, [], [None], [""], ["", ""], ["\0"], ["a"], ["a", "b"], ["ab"]],
    ),
    "List of lists": (
        pl.List(pl.List(pl.Int8)),
        [None, [], [None], [[]], [[], [1]], [[1]], [[1], []], [[1, 1]]],
    ),
    "Array": (pl.Array(pl.Int16, 2), [None, [None, 3], [1, None], [1, 2], [2, -5]]),
    "List of structs": (
        pl.List(pl.Struct({"a": pl.Boolean})),
        [None, [], [None], [{"a": None}], [{"a": True}]],
    ),
    "Map": (
        pl.Map(pl.String, pl.Int64),
        [None, {}, {"a": None}, {"a": None, "b": 1}, {"a": 1}, {"a": 1, "b": 1}, {"b": 1}, {"b": 1, "a": 1}],
    ),
}


def rows_of(columns: Sequence[pl.Series], descending: Sequence[bool] | None = None) -> list[bytes]:
    offsets, data = encode_rows(columns, descending)
    assert offsets[-1] == data.size
    return [bytes(data[offsets[i] : offsets[i + 1]]) for i in range(len(offsets) - 1)]


def assert_prefix_free(rows: list[bytes]) -> None:
    ordered = sorted(set(rows))
    assert not any(b.startswith(a) for a, b in itertools.pairwise(ordered))


@pytest.mark.parametrize("name", ASCENDING)
def test_each_type_is_encoded_in_its_order(name: str) -> None:
    dtype, values = ASCENDING[name]
    rows = rows_of([pl.Series(values, dtype=dtype)])
    assert rows == sorted(rows)
    assert len(set(rows)) == len(values)
    assert_prefix_free(rows)


@pytest.mark.parametrize("name", ASCENDING)
def test_a_descending_column_is_encoded_in_reverse(name: str) -> None:
    dtype, values = ASCENDING[name]
    rows = rows_of([pl.Series(values, dtype=dtype)], [True])
    assert rows == sorted(rows, reverse=True)
    assert len(set(rows)) == len(values)
    assert_prefix_free(rows)


@pytest.mark.parametrize("name", ASCENDING)
def test_a_row_is_encoded_alike_in_every_batch(name: str) -> None:
    dtype, values = ASCENDING[name]
    column = pl.Series(values, dtype=dtype)
    rows = rows_of([column])
    assert [rows_of([column[i : i + 1]])[0] for i in range(len(column))] == rows
    chunks = pl.concat([column[:2], column[2:]], rechunk=False)
    assert rows_of([chunks]) == rows
    assert rows_of([column[:0]]) == []


def test_zeros_are_equal_and_all_nans_are_equal() -> None:
    bits = np.array([0, -(2**63), 0x7FF8000000000000, -0x8000000000000, 0x7FF0000000000001], np.int64)
    zero, negative, *nans = rows_of([pl.Series(bits.view(np.float64))])
    assert zero == negative
    assert len(set(nans)) == 1


def test_fields_of_a_null_struct_do_not_count() -> None:
    column = pl.DataFrame({"a": [1, 2, 3]}).to_struct("s")
    masked = pl.select(pl.when(pl.Series([True, False, False])).then(column)).to_series()
    rows = rows_of([masked])
    assert rows[1] == rows[2] < rows[0]


def test_a_struct_without_fields_has_a_place() -> None:
    empty = pl.Series([{}, {}], dtype=pl.Struct([]))
    assert len(set(rows_of([empty, pl.Series([1, 2])]))) == 2


def test_no_columns_are_no_rows() -> None:
    assert rows_of([]) == []


def test_objects_have_no_order() -> None:
    with pytest.raises(TypeError, match="Object"):
        encode_rows([pl.Series([object()], dtype=pl.Object)])


def test_as_binary_has_the_bytes_of_the_rows() -> None:
    columns = [pl.Series([3, None, 1]), pl.Series(["long enough to be no inline view", "", None])]
    assert as_binary(*encode_rows(columns)).to_list() == rows_of(columns)


def rank(value: Any) -> tuple[Any, ...]:
    """A sort key with nulls first, NaN last and equal to itself."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, list):
        return (1, [rank(v) for v in value])
    return (1, value)


FRAMES = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 3),
        st.none() | st.floats(),
        st.none() | st.text(st.sampled_from("\0\x01ab\xff"), max_size=4),
        st.none() | st.booleans(),
        st.none() | st.lists(st.none() | st.integers(-2, 2), max_size=3),
    ),
    max_size=40,
)
TYPES: list[Any] = [pl.Int64, pl.Float64, pl.String, pl.Boolean, pl.List(pl.Int32)]


def columns_of(rows: list[tuple[Any, ...]], chosen: list[int]) -> list[pl.Series]:
    return [pl.Series([row[k] for row in rows], dtype=TYPES[k]) for k in chosen]


ORDERS = st.permutations(range(5)).flatmap(lambda p: st.integers(1, 5).map(lambda n: p[:n]))


@settings(deadline=None)
@given(FRAMES, ORDERS)
def test_rows_compare_as_tuples(frame: list[tuple[Any, ...]], chosen: list[int]) -> None:
    encoded = rows_of(columns_of(frame, chosen))
    ranks = [tuple(rank(row[k]) for k in chosen) for row in frame]
    for i in range(len(frame)):
        for j in range(i):
            assert (encoded[i] < encoded[j]) == (ranks[i] < ranks[j])
            assert (encoded[i] == encoded[j]) == (ranks[i] == ranks[j])
    assert_prefix_free(encoded)


@settings(deadline=None)
@given(FRAMES, st.lists(st.booleans(), min_size=2, max_size=2))
def test_columns_are_reversed_one_by_one(frame: list[tuple[Any, ...]], descending: list[bool]) -> None:
    encoded = rows_of(columns_of(frame, [0, 2]), descending)
    order = sorted(range(len(frame)), key=lambda i: rank(frame[i][2]), reverse=descending[1])
    order.sort(key=lambda i: rank(frame[i][0]), reverse=descending[0])
    assert [encoded[i] for i in order] == sorted(encoded)


@settings(deadline=None)
@given(FRAMES, ORDERS, st.integers(1, 50), st.booleans(), st.integers(0, 2**32 - 1))
def test_sort_permutation_agrees_with_sorted(
    frame: list[tuple[Any, ...]], chosen: list[int], instants: int, in_order: bool, seed: int
) -> None:
    sync = np.random.default_rng(seed).integers(0, instants, len(frame))
    sync = np.sort(sync) if in_order else sync
    wanted = sorted(range(len(frame)), key=lambda i: (sync[i], [rank(frame[i][k]) for k in chosen]))
    found = sort_permutation(sync, columns_of(frame, chosen))
    assert (list(range(len(frame))) if found is None else found.tolist()) == wanted
    assert (found is None) == (wanted == sorted(wanted))


@pytest.mark.parametrize("spread", [1, 3, 100, 5000])
def test_long_runs_are_sorted_stably(spread: int) -> None:
    rng = np.random.default_rng(spread)
    texts = rng.integers(0, spread, 5000)
    column = pl.Series([f"a common beginning of all rows {text}" for text in texts])
    sync = np.sort(rng.integers(0, 4, 5000))
    wanted = sorted(range(5000), key=lambda i: (sync[i], column[i]))
    found = sort_permutation(sync, [column])
    assert (list(range(5000)) if found is None else found.tolist()) == wanted


def test_rows_in_order_need_no_permutation() -> None:
    assert sort_permutation(np.array([1, 1, 2, 2]), [pl.Series(["a", "b", "b", "b"])]) is None
    assert sort_permutation(np.array([1, 1, 2, 2]), []) is None
    assert sort_permutation(np.array([], np.int64), [pl.Series([], dtype=pl.Int64)]) is None


def test_distinct_increasing_times_look_at_no_column() -> None:
    column = pl.Series([object(), object()], dtype=pl.Object)
    assert sort_permutation(np.array([1, 2]), [column]) is None


def test_times_out_of_order_are_sorted_without_columns() -> None:
    found = sort_permutation(np.array([3, 1, 2, 1]), [])
    assert found is not None
    assert found.tolist() == [1, 3, 2, 0]
