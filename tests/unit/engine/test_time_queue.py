from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from squill.engine.batch import Batch
from squill.engine.time_queue import TimeQueue
from squill.time import INFINITY


def rows(*times: int, first: int = 0) -> Batch:
    numbers = pl.Series("n", range(first, first + len(times)), pl.Int64)
    return Batch(np.array(times, np.int64), 1, {"n": numbers})


def popped(queue: TimeQueue, t: int) -> list[tuple[int, int]]:
    batch = queue.pop_until(t)
    return [] if batch is None else list(zip(batch.sync.tolist(), batch.columns["n"].to_list(), strict=True))


@given(st.lists(st.one_of(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 25)), max_size=20))
def test_rows_leave_by_time_and_equal_times_in_order_of_arrival(steps: list[list[int] | int]) -> None:
    queue = TimeQueue()
    waiting: list[tuple[int, int]] = []
    arrived = 0
    for step in steps:
        if isinstance(step, int):
            due = sorted((row for row in waiting if row[0] <= step), key=lambda row: row[0])
            waiting = [row for row in waiting if row[0] > step]
            assert popped(queue, step) == due
        else:
            queue.add(rows(*step, first=arrived))
            waiting += [(t, arrived + number) for number, t in enumerate(step)]
            arrived += len(step)
        assert len(queue) == len(waiting)
    assert popped(queue, INFINITY) == sorted(waiting, key=lambda row: row[0])


def test_rows_one_by_one_make_few_runs() -> None:
    queue = TimeQueue()
    for t in range(1000):
        queue.add(rows((t * 37) % 1000))
        assert len(queue.save()["runs"]) <= 11


def test_nothing_is_due_in_an_empty_queue() -> None:
    queue = TimeQueue()
    queue.add(rows())
    assert queue.pop_until(INFINITY) is None
    assert queue.save() == {"runs": []}


def test_endless_rows_are_counted() -> None:
    queue = TimeQueue()
    queue.add(Batch(np.array([1, 2]), np.array([INFINITY, 9])))
    queue.add(Batch(np.array([3]), INFINITY))
    assert queue.count_endless() == 2


def test_a_loaded_queue_goes_on_apart_from_the_first() -> None:
    first, second = TimeQueue(), TimeQueue()
    first.add(rows(5, 1))
    second.load(first.save())
    assert popped(first, 9) == [(1, 1), (5, 0)]
    second.add(rows(3, first=2))
    assert popped(second, 4) == [(1, 1), (3, 2)]
    assert len(second) == 1
