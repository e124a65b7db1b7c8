from __future__ import annotations

import datetime as dt
import decimal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.engine.time_sorter import TimeSorter
from squill.errors import BudgetExceededError
from squill.time import INFINITY
from tests.mapped_files import mapped_files

COLUMNS = [
    pl.Series([1, 2, 2**63 + 3], dtype=pl.UInt64),
    pl.Series([1.5, None, float("nan")], dtype=pl.Float32),
    pl.Series([True, None, False]),
    pl.Series([b"1", b"", None]),
    pl.Series(["a", None, "a"], dtype=pl.Categorical),
    pl.Series(["x", None, "y"], dtype=pl.Enum(["x", "y"])),
    pl.Series([dt.datetime(2020, 1, 1), None, None]).dt.replace_time_zone("Europe/Zurich"),
    pl.Series([dt.timedelta(1), None, dt.timedelta(-1)], dtype=pl.Duration("ms")),
    pl.Series([decimal.Decimal("1.50"), None, decimal.Decimal("-3.2")]),
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


def batch(times: list[int]) -> Batch:
    sync = np.array(times, np.int64)
    return Batch(sync, sync + 1, {"s": pl.Series("s", [None if t % 7 == 0 else f"row {t}" for t in times], pl.String)})


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TimeSorter]]:
    """Makes sorters that spill to the test's own folder and are closed with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[TimeSorter] = []

    def sorter(memory_bytes: int, block_rows: int = 1000) -> TimeSorter:
        made.append(TimeSorter(memory_bytes, block_rows))
        return made[-1]

    yield sorter
    for item in made:
        item.close()


@pytest.mark.parametrize("memory_bytes", [1, 2_000, 10**9])
def test_rows_come_out_in_time_order_spilled_or_not(memory_bytes: int, make: Callable[..., TimeSorter]) -> None:
    rng = np.random.default_rng(1)
    times = rng.integers(0, 500, 1000).tolist()
    sorter = make(memory_bytes, block_rows=64)
    for low in range(0, 1000, 50):
        sorter.add(batch(times[low : low + 50]))
    out = Batch.concat(list(sorter.release(INFINITY)))
    expected = batch(sorted(times))
    assert out.sync.tolist() == expected.sync.tolist()
    assert out.columns["s"].to_list() == expected.columns["s"].to_list()
    assert (sorter.spilled_runs > 0) is (memory_bytes < 10**9)


@pytest.mark.parametrize("series", COLUMNS, ids=[str(series.dtype) for series in COLUMNS])
def test_every_type_comes_back_from_disk_as_it_was(series: pl.Series, make: Callable[..., TimeSorter]) -> None:
    sorter = make(1)
    times = np.array([5, 1, 3])
    for later in (0, 1):
        sorter.add(Batch(times + later, 1, {"x": series.alias("x")}))
    found = Batch.concat(list(sorter.release(INFINITY))).columns["x"]
    assert sorter.spilled_runs == 2
    assert found.dtype == series.dtype
    assert found.equals(pl.concat([series, series]).gather([1, 4, 2, 5, 0, 3]), null_equal=True)


def test_columns_of_any_name_come_back_from_disk(make: Callable[..., TimeSorter]) -> None:
    names = ["__squill_sync__", "0", "1", "other", ""]
    sorter = make(1)
    sorter.add(Batch(np.array([5, 1]), 1, {name: pl.Series(name, [name, name * 2]) for name in names}))
    (out,) = sorter.release(INFINITY)
    assert {name: series.to_list() for name, series in out.columns.items()} == {
        name: [name * 2, name] for name in names
    }
    assert all(series.name == name for name, series in out.columns.items())


def test_rows_without_columns_come_back_from_disk(make: Callable[..., TimeSorter]) -> None:
    sorter = make(1)
    sorter.add(Batch(np.array([5, 1]), np.array([INFINITY, 2])))
    (out,) = sorter.release(INFINITY)
    assert (out.sync.tolist(), out.other.tolist(), out.columns) == ([1, 5], [2, INFINITY], {})


def test_rows_above_the_bound_stay(make: Callable[..., TimeSorter]) -> None:
    sorter = make(1)
    sorter.add(batch([5, 1]))
    sorter.add(batch([3, 9]))
    assert [piece.sync.tolist() for piece in sorter.release(3)] == [[1, 3]]
    sorter.add(batch([4]))
    assert np.concatenate([piece.sync for piece in sorter.release(INFINITY)]).tolist() == [4, 5, 9]
    assert len(sorter) == 0


def test_blocks_bound_what_is_merged_at_once(make: Callable[..., TimeSorter]) -> None:
    sorter = make(1, block_rows=10)
    sorter.add(batch(list(range(0, 200, 2))))
    sorter.add(batch(list(range(1, 200, 2))))
    assert max(len(piece) for piece in sorter.release(INFINITY)) <= 20


def test_close_leaves_nothing_on_disk(make: Callable[..., TimeSorter], tmp_path: Path) -> None:
    sorter = make(1)
    sorter.add(batch([5, 1]))
    assert mapped_files(tmp_path) == 1
    sorter.close()
    assert mapped_files(tmp_path) == 0


def test_rows_that_cannot_be_written_are_an_error_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    sorter = TimeSorter(memory_bytes=0)
    with pytest.raises(BudgetExceededError, match=r"0 MiB.*temporary folder: No such file or dir[^\n]*\n.*TMPDIR"):
        sorter.add(batch([2, 1]))
    sorter.close()
