from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squill.engine.columns import read_only
from squill.exchange.kernels.merge import copy_turns, find_turns, interleave, merge_neighbours, merge_pair
from squill.time import INFINITY, MINUS_INFINITY


@pytest.mark.parametrize(
    ("times", "bounds", "expected"),
    [
        ([1, 4, 2, 4, 0], [0, 2, 4, 5], [0, 2, 1, 3, 4]),
        ([5, 6, 1, 2], [0, 2, 4], [2, 3, 0, 1]),
        ([7, 7, 7, 7], [0, 1, 2, 3, 4], [0, 1, 2, 3]),
        ([3, 1], [0, 0, 1, 1, 2], [0, 1]),
        ([1, 2], [0, 2], [0, 1]),
        ([], [0, 0, 0], []),
    ],
)
def test_neighbouring_runs_become_one(times: list[int], bounds: list[int], expected: list[int]) -> None:
    rows = np.arange(len(times), dtype=np.uint32)
    new_times, new_rows = np.empty(len(times), np.int64), np.empty_like(rows)
    merge_neighbours(np.array(times, np.int64), rows, np.array(bounds), new_times, new_rows)
    assert new_rows.tolist() == expected
    assert new_times.tolist() == [times[row] for row in expected]


INSTANTS = [MINUS_INFINITY, -1, 0, 1, 5, INFINITY]
runs_of_instants = st.lists(st.tuples(st.sampled_from(INSTANTS), st.integers(1, 40)), max_size=5).map(
    lambda parts: np.sort(np.repeat([time for time, _ in parts], [size for _, size in parts]).astype(np.int64))
)


@given(runs_of_instants, runs_of_instants)
def test_turns_are_those_of_a_stable_sort(left: np.ndarray, right: np.ndarray) -> None:
    turns = np.empty(2 * len(INSTANTS) + 2, np.int64)
    count = find_turns(read_only(left), read_only(right), turns)
    assert 0 <= count <= len(turns)
    rows = np.arange(len(left) + len(right), dtype=np.uint32)
    out = np.empty_like(rows)
    copy_turns(turns[:count], read_only(rows[: len(left)]), read_only(rows[len(left) :]), out)
    assert out.tolist() == np.argsort(np.concatenate([left, right]), kind="stable").tolist()


@given(st.lists(st.integers(0, 30), max_size=60), st.lists(st.integers(0, 30), max_size=60))
def test_pair_is_merged_as_by_a_stable_sort(left: list[int], right: list[int]) -> None:
    runs = [read_only(np.sort(np.array(run, np.int64))) for run in (left, right)]
    together = np.concatenate(runs)
    times, is_right = np.empty_like(together), np.empty(len(together), np.uint8)
    merge_pair(*runs, times, is_right)
    rows = np.arange(len(together), dtype=np.uint32)
    out = np.empty_like(rows)
    interleave(is_right, read_only(rows[: len(left)]), read_only(rows[len(left) :]), out)
    assert out.tolist() == np.argsort(together, kind="stable").tolist()
    assert times.tolist() == sorted(together.tolist())
    assert is_right.tolist() == [int(row >= len(left)) for row in out]


def test_runs_that_take_turns_too_often_are_given_up() -> None:
    left, right = read_only(np.arange(0, 20, 2)), read_only(np.arange(1, 21, 2))
    assert find_turns(left, right, np.empty(8, np.int64)) == -1
    assert find_turns(left, right, np.empty(20, np.int64)) == 20
