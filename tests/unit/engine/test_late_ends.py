"""Ends that follow by number, beside a dictionary of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine import late_ends
from squill.engine.batch import Batch
from squill.engine.late_ends import LateEnds
from squill.time import INFINITY

ends = st.one_of(st.integers(0, 9), st.just(INFINITY))


def numbered(ids: np.ndarray | range, other: list[int] | int) -> Batch:
    return Batch(np.zeros(len(ids), np.int64), np.array(other) if isinstance(other, list) else other, ids=ids)


@pytest.fixture(autouse=True, scope="module")
def little_room() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_ends, "FIRST_ENDS", 1)
        yield


@settings(deadline=None)  # the first call compiles
@given(st.data())
def test_ends_are_those_that_were_told(data: st.DataObject) -> None:
    late, model = LateEnds(), dict[int, int]()
    number = first = 0
    for _ in range(data.draw(st.integers(1, 12))):
        gaps = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
        ids = number + np.cumsum(gaps) + np.arange(len(gaps))
        is_range = not any(gaps[1:])
        told = data.draw(st.one_of(st.just(INFINITY), st.lists(ends, min_size=len(ids), max_size=len(ids))))
        late.add(numbered(range(ids[0], ids[-1] + 1) if is_range else ids, told))
        model |= dict(zip(ids.tolist(), told if isinstance(told, list) else [told] * len(ids), strict=True))
        number = int(ids[-1]) + 1
        # Among them are numbers that were dropped, forgotten or are still to come.
        closed = data.draw(st.dictionaries(st.integers(0, number + 3), st.integers(0, 9), max_size=4))
        late.close(np.array(list(closed), np.int64), np.array(list(closed.values()), np.int64))
        model |= {row: end for row, end in closed.items() if row in model and row >= first}
        is_open = [row for row, end in model.items() if end == INFINITY and row >= first]
        assert late.first_open() == min(is_open, default=number)
        first = data.draw(st.integers(first, late.first_open()))
        late.forget(first)
        kept = [row for row in model if row >= first]
        assert late.of(np.array(kept, np.int64)).tolist() == [model[row] for row in kept]
        if data.draw(st.booleans()):
            saved, late = late.save(), LateEnds()
            late.load(saved)
    runs = range(min(kept), number) if kept and len(kept) == number - min(kept) else None
    if runs is not None:
        assert late.of(runs).tolist() == late.of_last(runs).tolist() == [model[row] for row in runs]


def test_room_is_that_of_the_rows_which_are_not_forgotten() -> None:
    late = LateEnds()
    for first in range(0, 10_000, 10):
        late.add(numbered(range(first, first + 10), INFINITY))
        late.close(np.arange(first, first + 9), np.full(9, 5))
        if first:
            late.close(np.array([first - 1]), np.array([5]))
        assert late.first_open() == first + 9
        late.forget(first)
    assert len(late._ends) <= 64
