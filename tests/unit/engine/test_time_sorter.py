from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.engine.time_sorter import TimeSorter
from squill.time import INFINITY


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
    assert len(list(tmp_path.rglob("*.arrow"))) == 1
    sorter.close()
    assert list(tmp_path.iterdir()) == []
