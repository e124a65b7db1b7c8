from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from squill.engine.batch import Batch, Int64s
from squill.exchange.codec import COMPRESSIONS, decode, encode, encoded_pieces
from squill.plan.schema import Schema
from squill.time import INFINITY, MINUS_INFINITY

COLUMNS = [
    pl.Series([1, None, 3], dtype=pl.Int8),
    pl.Series([1, 2, 2**63 + 3], dtype=pl.UInt64),
    pl.Series([1.5, None, float("nan")], dtype=pl.Float32),
    pl.Series([True, None, False]),
    pl.Series(["a", None, "ccc"]),
    pl.Series([b"1", b"", None]),
    pl.Series(["a", None, "a"], dtype=pl.Categorical),
    pl.Series(["x", None, "y"], dtype=pl.Enum(["x", "y"])),
    pl.Series([dt.date(2020, 1, 1), None, dt.date(1960, 1, 1)]),
    pl.Series([dt.datetime(2020, 1, 1), None, None]).dt.replace_time_zone("Europe/Zurich"),
    pl.Series([dt.datetime(2020, 1, 1)] * 3, dtype=pl.Datetime("ns")),
    pl.Series([dt.timedelta(1), None, dt.timedelta(-1)]),
    pl.Series([dt.time(1), None, dt.time(2)]),
    pl.Series([decimal.Decimal("1.50"), None, decimal.Decimal("-3.2")]),
    pl.Series([[1], [], None]),
    pl.Series([["x"], [], None], dtype=pl.List(pl.Enum(["x", "y"]))),
    pl.Series([{"a": 1, "b": "x"}, {"a": None, "b": None}, None]),
    pl.Series([[1, 2]] * 3, dtype=pl.Array(pl.Int64, 2)),
    pl.Series([None] * 3),
    pl.Series([2**127 - 1, None, -(2**127)], dtype=pl.Int128),
    pl.Series([2**128 - 1, None, 0], dtype=pl.UInt128),
    pl.Series([[2**100, None], [], None], dtype=pl.List(pl.Int128)),
    pl.Series([[1, 2**64]] * 3, dtype=pl.Array(pl.UInt128, 2)),
    pl.Series([{"a": 2**100}, {"a": None}, None], dtype=pl.Struct({"a": pl.Int128})),
]


def round_trip(batch: Batch, compression: str | None = None) -> Batch:
    schema = Schema({name: series.dtype for name, series in batch.columns.items()})
    return decode(encode(batch, compression), schema)


def assert_same(left: Batch, right: Batch) -> None:
    assert left.sync.tolist() == right.sync.tolist()
    assert left.other.tolist() == right.other.tolist()
    assert list(left.columns) == list(right.columns)
    for name, series in left.columns.items():
        assert series.dtype == right.columns[name].dtype
        assert series.equals(right.columns[name], null_equal=True)


@pytest.mark.parametrize("series", COLUMNS, ids=[str(series.dtype) for series in COLUMNS])
@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_every_type_comes_back_as_it_was(series: pl.Series, compression: str | None) -> None:
    times = np.array([1, 2, 5])
    batch = Batch(times, np.array([2, 7, 7]), {"x": series.alias("x")})
    assert_same(round_trip(batch, compression), batch)


TIMES = {
    "points": (np.array([3, 4, 9]), np.array([4, 5, 10])),
    "one instant": (np.array([3, 3, 3]), np.array([4, 5, 6])),
    "one lifetime": (np.array([3, 3, 3]), np.array([9, 9, 9])),
    "start edges": (np.array([3, 4, 9]), np.full(3, INFINITY)),
    "end edges": (np.array([3, 4, 9]), np.array([1, 1, 5])),
    "relational": (np.full(3, MINUS_INFINITY), np.full(3, INFINITY)),
    "first and last agree, the middle does not": (np.array([3, 4, 9]), np.array([4, 9, 10])),
    "equal first and last end": (np.array([3, 4, 9]), np.array([12, 10, 12])),
    "a distance beyond 64 bits": (np.array([MINUS_INFINITY + 1, 0, 5]), np.array([INFINITY - 1, 3, 9])),
    "no rows": (np.empty(0, np.int64), np.empty(0, np.int64)),
}


@pytest.mark.parametrize(("sync", "other"), TIMES.values(), ids=TIMES)
def test_times_come_back_as_they_were(sync: Int64s, other: Int64s) -> None:
    batch = Batch(sync, other, {"x": pl.Series("x", range(len(sync)), dtype=pl.Int64)})
    assert_same(round_trip(batch), batch)


def test_batch_without_columns_keeps_its_rows() -> None:
    assert len(round_trip(Batch(np.array([5, 5]), np.array([6, 6])))) == 2


def test_constant_times_are_sent_once() -> None:
    rows = 10_000
    times = np.arange(rows) * 2**40  # too far apart to be sent in fewer bytes
    varying = Batch(times, times * 2 + 1)
    points = Batch(times, times + 1)
    instant = Batch(np.full(rows, 7), np.full(rows, 9))
    assert encode(varying).size > 16 * rows
    assert 8 * rows < encode(points).size < 9 * rows
    assert encode(instant).size < 1_000


def test_slice_sends_its_own_bytes_only() -> None:
    text = pl.Series("s", [f"{number:0>40}" for number in range(10_000)])
    times = np.full(10_000, 3)
    part = Batch(times, times + 1, {"s": text}).slice(100, 110)
    assert encode(part).size < 3_000
    assert_same(round_trip(part), part)


def test_column_may_be_called_sync() -> None:
    times = np.array([1, 2])
    batch = Batch(times, times * 3, {"sync": pl.Series("sync", ["a", "b"]), "other": pl.Series("other", [1, 2])})
    assert_same(round_trip(batch), batch)


def test_numbers_are_not_copied() -> None:
    times = np.array([1, 4])
    data = encode(Batch(times, times * 3, {"x": pl.Series("x", [10, 20])}))
    found = decode(data, Schema({"x": pl.Int64()})).columns["x"].to_numpy(allow_copy=False)
    begin = data.address
    assert begin <= found.__array_interface__["data"][0] < begin + data.size


def test_rows_without_times_arrive_as_such() -> None:
    columns = {"x": pl.Series("x", [1, 2, 3])}
    arrived = round_trip(Batch.relational(columns, 3))
    assert arrived.is_timeless
    assert_same(arrived, Batch.relational(columns, 3))


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_pieces_are_the_bytes_and_columns_are_not_copied(compression: str | None) -> None:
    values = np.arange(30_000) * 2**40  # too far apart to be sent in fewer bytes
    batch = Batch.relational({"x": pl.Series("x", values), "y": pl.Series("y", ["a", None, "b"] * 10_000)}, 30_000)
    pieces = encoded_pieces(batch, compression)
    data = encode(batch, compression)
    assert b"".join(pieces) == data.to_pybytes()
    assert_same(decode(data, Schema({"x": pl.Int64(), "y": pl.String()})), batch)
    if compression is None:
        column = batch.columns["x"].to_numpy(allow_copy=False).__array_interface__["data"][0]
        assert column in [piece.address for piece in pieces if isinstance(piece, pa.Buffer)]


LONG = {
    "one value": [7] * 300,
    "bytes": list(range(-128, 128)) + [127] * 44,
    "one more than bytes": [*range(-128, 128), 128],
    "two bytes": [2**62 + value for value in range(0, 65_536, 128)],
    "four bytes": [-(2**63) + value * (2**32 - 1) // 299 for value in range(300)],
    "more than four bytes": [value * 2**32 // 299 for value in range(300)],
    "the ends of the range": [-(2**63), 2**63 - 1] * 150,
    "the least": [-(2**63)] * 300,
    "one far away": [0] * 299 + [2**40],
}


@pytest.mark.parametrize("values", LONG.values(), ids=LONG)
@pytest.mark.parametrize(
    "dtype",
    [pl.Int64(), pl.UInt64(), pl.Datetime("us", "UTC"), pl.Datetime("ns"), pl.Duration("ms"), pl.Time()],
    ids=str,
)
def test_long_integers_come_back_whatever_their_range(values: list[int], dtype: pl.DataType) -> None:
    if isinstance(dtype, pl.UInt64):
        values = [value + 2**63 for value in values]
    series = pl.Series("x", values, pl.UInt64() if isinstance(dtype, pl.UInt64) else pl.Int64())
    if isinstance(dtype, pl.Time):
        series = series % 86_400_000_000_000
    series = series.cast(dtype)
    times = np.sort(np.array(values, object) % 2**62).astype(np.int64)
    batch = Batch(times, times[::-1] + 1, {"x": series})
    assert_same(round_trip(batch), batch)


def test_long_integers_that_lie_close_together_take_few_bytes() -> None:
    times = np.arange(10_000) + 10**15
    close = Batch(times, times + 1, {"x": pl.Series("x", times % 200)})
    assert 3 * 10_000 < encode(close).size < 3.2 * 10_000
    hashes = pl.Series("x", times).hash()
    assert 8 * 10_000 < encode(Batch.relational({"x": hashes}, 10_000)).size < 8.2 * 10_000


def test_rows_that_an_older_version_has_kept_are_read() -> None:
    schema = pa.schema([pa.field("x", pa.int64())], metadata={b"squill": b'{"rows": 2, "sync": 3, "other": 4}'})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([5, 6])], schema=schema))
    rows = decode(sink.getvalue(), Schema({"x": pl.Int64()}))
    assert (rows.sync.tolist(), rows.other.tolist(), rows.columns["x"].to_list()) == ([3, 3], [4, 4], [5, 6])
