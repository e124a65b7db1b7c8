"""Grid points, compared with Python's integers, up to the ends of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squill.engine.grid_pieces import expand, last_grid_point, next_grid_point
from squill.errors import UnboundedResultError
from squill.time import INFINITY, MINUS_INFINITY

times = st.one_of(st.integers(-50, 50), st.integers(MINUS_INFINITY + 1, INFINITY - 1))
periods = st.one_of(st.integers(1, 12), st.integers(1, INFINITY - 1))


@given(times, periods, times)
def test_next_grid_point_is_the_first_after(t: int, period: int, offset: int) -> None:
    expected = offset + ((t - offset) // period + 1) * period
    assert next_grid_point(np.array([t]), period, offset).tolist() == [min(expected, INFINITY)]


@given(times, periods, times)
def test_last_grid_point_is_not_after(t: int, period: int, offset: int) -> None:
    expected = offset + (t - offset) // period * period
    assert last_grid_point(np.array([t]), period, offset).tolist() == [max(expected, MINUS_INFINITY)]


@given(st.lists(st.tuples(times, st.integers(-3, 20)), max_size=5), st.integers(1, 9))
def test_expand_gives_every_step_up_to_the_last(rows: list[tuple[int, int]], period: int) -> None:
    rows = [(first, min(first + length, INFINITY - 1)) for first, length in rows]
    steps, of = expand(
        np.array([a for a, _ in rows], np.int64), np.array([b for _, b in rows], np.int64), period, "chop"
    )
    expected = [(t, row) for row, (first, last) in enumerate(rows) for t in range(first, last + 1, period)]
    assert list(zip(steps.tolist(), of.tolist(), strict=True)) == expected


@pytest.mark.parametrize("period", [2**61, 2**62 + 3, 2**63 - 2])
def test_expand_over_all_time(period: int) -> None:
    first, last = MINUS_INFINITY + 1, INFINITY - 1
    steps, of = expand(np.array([first, 0]), np.array([last, -1]), period, "chop")
    assert steps.tolist() == list(range(first, last + 1, period))
    assert set(of.tolist()) == {0}


def test_expand_of_nothing() -> None:
    none = np.empty(0, np.int64)
    assert [part.tolist() for part in expand(none, none, 3, "chop")] == [[], []]


def test_pieces_that_no_memory_holds_are_refused() -> None:
    with pytest.raises(UnboundedResultError, match=r"chop: .* has 9.22e\+18 pieces of 1 ticks"):
        expand(np.array([0]), np.array([INFINITY - 1]), 1, "chop")
