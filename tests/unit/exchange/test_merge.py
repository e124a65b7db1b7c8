from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.batch import Batch
from squill.exchange import merge
from squill.exchange.merge import merge_by_time, merge_order, merge_runs, worth_pushing


def batch(*times: int, run: int = 0) -> Batch:
    sync = np.array(times, np.int64)
    return Batch(sync, sync + 1, {"run": pl.Series("run", [run] * len(times), pl.Int64())})


def merged_rows(runs: list[list[Batch]]) -> list[tuple[int, int]]:
    merged = list(merge_runs(runs))
    return [pair for item in merged for pair in zip(item.sync.tolist(), item.columns["run"].to_list(), strict=True)]


runs_of_times = st.lists(st.lists(st.integers(0, 20), max_size=30).map(sorted), max_size=6)


@settings(deadline=None)  # the first call compiles
@given(runs_of_times, st.integers(1, 8))
def test_rows_leave_in_sync_order_and_none_is_lost(times: list[list[int]], size: int) -> None:
    runs = [
        [batch(*run[low : low + size], run=number) for low in range(0, len(run), size)]
        for number, run in enumerate(times)
    ]
    found = merged_rows(runs)
    assert [time for time, _ in found] == sorted(time for run in times for time in run)
    assert sorted(found) == sorted((time, number) for number, run in enumerate(times) for time in run)


@settings(deadline=None)
@given(runs_of_times)
def test_order_of_whole_runs_is_a_stable_sort(times: list[list[int]]) -> None:
    arrays = [np.array(run, np.int64) for run in times] or [np.empty(0, np.int64)]
    together = np.concatenate(arrays)
    found, rows = merge_order(arrays)
    assert rows.tolist() == np.argsort(together, kind="stable").tolist()
    assert found.tolist() == sorted(together.tolist())


@settings(deadline=None)
@given(runs_of_times, st.integers(1, 8), st.integers(1, 4))
def test_slices_of_time_one_after_the_other_are_the_merged_runs(times: list[list[int]], size: int, slices: int) -> None:
    runs = [
        [batch(*run[low : low + size], run=number) for low in range(0, len(run), size)]
        for number, run in enumerate(times)
    ]
    parts = [merge() for merge in merge_by_time(runs, slices)]
    assert len(parts) <= slices
    found = [
        pair
        for part in parts
        for item in part
        for pair in zip(item.sync.tolist(), item.columns["run"].to_list(), strict=True)
    ]
    assert [time for time, _ in found] == sorted(time for run in times for time in run)
    assert sorted(found) == sorted((time, number) for number, run in enumerate(times) for time in run)


def test_slices_have_about_as_many_rows() -> None:
    runs = [[batch(*range(number, 3_000, 3), run=number)] for number in range(3)]
    assert [sum(map(len, merge())) for merge in merge_by_time(runs, 3)] == [999, 999, 1_002]


def test_rows_of_all_time_are_one_slice() -> None:
    rows = Batch.relational({"x": pl.Series("x", [1, 2])}, 2)
    (merge,) = merge_by_time([[rows], [rows]], 4)
    assert sorted(x for item in merge() for x in item.columns["x"]) == [1, 1, 2, 2]


def test_merged_rows_let_go_of_what_they_were_made_of() -> None:
    early, late = batch(1, 3), batch(5, 7)
    first, second = weakref.ref(early.sync), weakref.ref(late.sync)
    one, other = merge_by_time([[early, late], [batch(2, 4, 6, 8)]], 2)
    del early, late
    held = one()
    assert (first() is None, second() is None) == (True, False)
    held += other()
    assert second() is None
    assert [time for item in held for time in item.sync.tolist()] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_runs_that_do_not_overlap_are_forwarded_whole() -> None:
    first, second, third = batch(1, 2), batch(2, 5), batch(9)
    assert [id(item) for item in merge_runs([[third], [first], [second]])] == [id(first), id(second), id(third)]


def test_overlap_is_merged_up_to_the_earliest_end() -> None:
    merged = merge_runs([[batch(1, 5, 9)], [batch(2, 3)]])
    assert [item.sync.tolist() for item in merged] == [[1, 2, 3], [5, 9]]


def test_earlier_run_comes_first_at_equal_times() -> None:
    assert merged_rows([[batch(4, 4, 6, run=0)], [batch(1, 4, run=1)]]) == [(1, 1), (4, 0), (4, 0), (4, 1), (6, 0)]


def test_instant_that_goes_on_in_the_next_batch_stays_in_order() -> None:
    runs = [[batch(1, 4, run=0), batch(4, 4, run=0), batch(4, 8, run=0)], [batch(2, 4, run=1), batch(4, run=1)]]
    assert [time for time, _ in merged_rows(runs)] == [1, 2, 4, 4, 4, 4, 4, 4, 8]


def test_empty_batches_and_runs_are_nothing() -> None:
    assert merged_rows([[], [batch()], [batch(), batch(3, run=2)]]) == [(3, 2)]


def test_runs_are_read_as_they_are_needed() -> None:
    read: list[int] = []

    def run() -> Iterator[Batch]:
        for number in range(5):
            read.append(number)
            yield batch(number)

    next(iter(merge_runs([run()])))
    assert read == [0]


def test_small_neighbours_are_put_together_and_large_batches_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "SMALL_ROWS", 4)
    given_to = [batch(1, 2), batch(2), batch(2, 3, 4), batch(*range(5, 10)), batch(9)]
    found = list(worth_pushing(given_to))
    assert [item.sync.tolist() for item in found] == [[1, 2, 2], [2, 3, 4], [5, 6, 7, 8, 9], [9]]
    assert found[1] is given_to[2]
    assert found[2] is given_to[3]
    assert list(worth_pushing([])) == []


def test_long_turns_are_copied_with_all_types_of_columns() -> None:
    def run(number: int) -> Batch:
        sync = np.repeat(np.arange(number, 10), 50)
        rows = np.arange(len(sync)) + 1_000 * number
        columns = {
            "i": pl.Series("i", rows, pl.Int32()),
            "n": pl.Series("n", [None if row % 7 == 0 else row for row in rows.tolist()], pl.Int64()),
            "s": pl.Series("s", [f"row {row}" for row in rows.tolist()]),
            "b": pl.Series("b", rows % 2 == 0),
        }
        return Batch(sync, sync + rows % 3 + 1, columns)

    runs = [run(0), run(3)]
    (merged,) = merge_runs([[item] for item in runs])
    order = np.argsort(np.concatenate([item.sync for item in runs]), kind="stable")
    expected = Batch.concat(runs).take(order)
    assert merged.sync.tolist() == expected.sync.tolist()
    assert merged.other.tolist() == expected.other.tolist()
    assert {name: series.to_list() for name, series in merged.columns.items()} == {
        name: series.to_list() for name, series in expected.columns.items()
    }


def test_runs_without_rows_are_one_slice() -> None:
    (merge,) = merge_by_time([[batch()], [batch()]], 4)
    assert merge() == []
