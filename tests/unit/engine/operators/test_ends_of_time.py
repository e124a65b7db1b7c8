"""Grids and windows up to the ends of time: the reference's answer, or an error, and never a time gone wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import TimeOverflowError
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from squill.time import INFINITY, MINUS_INFINITY

FIRST, LAST = MINUS_INFINITY + 1, INFINITY - 1
landmarks = st.sampled_from([FIRST, FIRST + 50, -(2**62), -(2**61), -100, 0, 100, 2**61, 2**62, LAST - 60, LAST - 3])
times = st.builds(lambda t, more: t + more, landmarks, st.integers(0, 3))
periods = st.sampled_from([7, 7, 1000, 2**61, 2**61 + 1, 2**62 + 3, LAST - 3, LAST])
offsets = st.sampled_from([0, -3, 2**61, -(2**62), 2**62 + 1, FIRST, LAST, LAST // 3])
lifetimes = st.lists(st.tuples(times, times).map(sorted).filter(lambda pair: pair[0] < pair[1]), min_size=1, max_size=2)

OPERATORS: dict[str, Callable[[Stream, int, int, int], Stream]] = {
    "chop": lambda s, size, period, offset: s.chop(max(period, 2**61), offset),
    "quantize": lambda s, size, period, offset: s.quantize(size, period, offset),
    "hopping_window": lambda s, size, period, offset: s.hopping_window(size, period, offset),
    "hopping_window, right": lambda s, size, period, offset: s.hopping_window(size, period, offset, "right"),
    "hopping_window, counted": lambda s, size, period, offset: s.hopping_window(size, period, offset).count(),
    "session_window": lambda s, size, period, offset: s.session_window(size, period),
    "shift": lambda s, size, period, offset: s.shift(offset),
    "extend": lambda s, size, period, offset: s.extend(offset),
    "clip": lambda s, size, period, offset: s.clip(size),
}


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_no_time_wraps_around(operator: str, *, edges: bool) -> None:
    answers = 0

    @settings(max_examples=80, deadline=None, derandomize=True)
    @given(lifetimes, periods, periods, offsets)
    def agrees(rows: list[list[int]], size: int, period: int, offset: int) -> None:
        nonlocal answers
        frame = {"t": [start for start, _ in rows], "u": [end for _, end in rows], "x": [1] * len(rows)}
        stream = sq.from_frame(frame, start="t", end="u")
        query = OPERATORS[operator](stream.distinct() if edges else stream, size, period, offset)
        try:
            found = query.collect()
        except TimeOverflowError:
            return  # the engine gives up a little before the end of time
        assert_same_events(found, reference.frame(query))
        answers += 1

    agrees()
    assert answers >= 5
