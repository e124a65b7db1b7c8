from __future__ import annotations

import numpy as np
import pytest

from squill.engine.kernels.disorder import IN_TIME, arrivals
from squill.engine.kernels.lifetimes import bounds
from squill.time import INFINITY, MINUS_INFINITY


def run(
    sync: list[int], wait: int = 0, highest: int = MINUS_INFINITY, punctuated: int = MINUS_INFINITY
) -> tuple[object, ...]:
    met = np.empty(len(sync), np.int64)
    late, highest, ordered = arrivals(np.array(sync, np.int64), wait, highest, punctuated, met)
    return late, highest, ordered, [None if now == IN_TIME else now for now in met.tolist()]


def test_rows_in_order_are_in_time() -> None:
    assert run([1, 1, 5]) == (0, 5, True, [None, None, None])


def test_a_row_below_the_highest_is_late_by_the_time_it_met() -> None:
    assert run([5, 4, 9, 8]) == (2, 9, False, [None, 5, None, 9])


def test_waiting_moves_the_clock_back() -> None:
    assert run([20, 12, 9], wait=10) == (1, 20, False, [None, None, 10])


def test_a_punctuation_holds_whatever_the_wait() -> None:
    assert run([20, 12], wait=10, punctuated=15) == (1, 20, False, [None, 15])


def test_the_clock_does_not_wrap_below_minus_infinity() -> None:
    assert run([MINUS_INFINITY + 1, MINUS_INFINITY + 1], wait=INFINITY - 1)[0] == 0


def test_no_rows_change_nothing() -> None:
    assert run([], highest=7) == (0, 7, True, [])


@pytest.mark.parametrize(
    ("ticks", "expected"), [([3, -1, 2], (-1, 3)), ([4], (4, 4)), ([], (INFINITY, MINUS_INFINITY))]
)
def test_bounds(ticks: list[int], expected: tuple[int, int]) -> None:
    assert bounds(np.array(ticks, np.int64)) == expected
