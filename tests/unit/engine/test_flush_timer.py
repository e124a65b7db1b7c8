"""Rows that wait under `max_delay`: sent by `poll`, or by a thread that ends with its subscription."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import UserFunctionError
from squill.pushed import PushedSource

SCHEMA = {"t": pl.Int64, "x": pl.Int64}
LONG = 5.0


def source_of(max_delay: str | None, **arguments: Any) -> PushedSource:
    return sq.source(SCHEMA, start="t", max_delay=max_delay, **arguments)


def timers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "squill-flush"}


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait until it holds, which takes milliseconds unless it never does."""
    end = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = timers()
    yield
    gc.collect()
    assert eventually(lambda: timers() <= before)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def polled() -> tuple[PushedSource, Any, Clock, list[Any]]:
    source, clock, rows = source_of("10ms"), Clock(), []
    source._feed._now = clock
    subscription = source.subscribe(lambda frame: rows.extend(frame.rows()), emit="closed", timer=False)
    return source, subscription, clock, rows


def test_poll_sends_what_is_due_and_nothing_else() -> None:
    source, subscription, clock, rows = polled()
    source.push({"t": [1, 2], "x": [1, 2]})
    clock.now = 0.009
    subscription.poll()
    assert rows == []
    clock.now = 0.010
    subscription.poll()
    assert rows == [(1, 2, 1)]
    subscription.poll()
    assert rows == [(1, 2, 1)]
    subscription.stop()
    subscription.poll()


def test_rows_wait_from_the_first_that_came() -> None:
    source, subscription, clock, rows = polled()
    source.push({"t": 1, "x": 1})
    clock.now = 0.008
    source.push({"t": 2, "x": 2})
    clock.now = 0.011
    subscription.poll()
    assert rows == [(1, 2, 1)]
    source.push({"t": 3, "x": 3})
    clock.now = 0.020
    subscription.poll()
    assert rows == [(1, 2, 1)]
    clock.now = 0.0211
    subscription.poll()
    assert rows == [(1, 2, 1), (2, 3, 2)]


def test_poll_looks_at_every_source_of_the_query() -> None:
    left, right, rows = source_of("1ms"), source_of("1ms"), []
    clock = Clock()
    left._feed._now = right._feed._now = clock
    subscription = left.union(right).subscribe(lambda frame: rows.extend(frame.rows()), emit="closed", timer=False)
    left.push({"t": [1, 9], "x": [1, 9]})
    right.push({"t": [2, 9], "x": [2, 9]})
    clock.now = 0.001
    subscription.poll()
    assert rows == [(1, 2, 1), (2, 3, 2)]


@pytest.mark.parametrize(("max_delay", "timer", "threads"), [("1h", True, 1), ("1h", False, 0), (None, True, 0)])
def test_there_is_a_thread_only_where_rows_wait(max_delay: str | None, timer: bool, threads: int) -> None:
    before = timers()
    subscription = source_of(max_delay).subscribe(print, timer=timer)
    assert len(timers() - before) == threads
    subscription.stop()
    assert timers() <= before


def test_two_sources_of_a_query_share_one_thread() -> None:
    before = timers()
    subscription = source_of("1h").union(source_of("1h")).subscribe(print)
    assert len(timers() - before) == 1
    subscription.stop()


def test_the_timer_sends_rows_on_a_thread_of_its_own() -> None:
    source, seen = source_of("2ms"), []
    subscription = source.subscribe(lambda frame: seen.append((frame.rows(), threading.current_thread().name)))
    for t in range(3):
        source.push({"t": t, "x": t})
        source.push({"t": t, "x": -1})
        assert eventually(lambda: source.counts["waiting"] == 0)
    subscription.stop()
    assert [row for rows, _ in seen for row in rows][:2] == [(0, 1, 0), (0, 1, -1)]
    assert "squill-flush" in {name for _, name in seen}


def test_the_thread_ends_with_completion() -> None:
    before = timers()
    left, right = source_of("1h"), source_of("1h")
    left.union(right).subscribe(print)
    left.complete()
    assert len(timers() - before) == 1
    right.complete()
    assert eventually(lambda: timers() <= before)


def test_a_query_that_nobody_holds_goes_and_its_thread_with_it() -> None:
    before = timers()
    source = source_of("1h")
    subscription = source.subscribe(lambda frame: None)
    source.push({"t": 1, "x": 1})
    gone = weakref.ref(subscription)
    del source, subscription
    gc.collect()
    assert eventually(lambda: gone() is None and timers() <= before)


def test_the_interpreter_ends_while_rows_wait() -> None:
    program = """
import polars as pl, squill as sq
source = sq.source({"t": pl.Int64}, start="t", max_delay="1h")
subscription = source.subscribe(print)
source.push({"t": 1})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def fail(frame: pl.DataFrame) -> None:
    raise ZeroDivisionError("no")


@pytest.mark.parametrize("act", ["push", "flush", "punctuate", "complete", "poll", "push to the other"])
def test_an_error_on_the_timer_is_raised_once_by_the_next_call(act: str) -> None:
    source, other = source_of("1ms"), source_of(None)
    subscription = source.union(other).subscribe(fail)
    going_on: list[Any] = []
    source.subscribe(lambda frame: going_on.extend(frame.rows()))
    other.punctuate(1000)
    source.push({"t": [1, 2], "x": [1, 7]})
    assert eventually(lambda: subscription.error is not None and len(going_on) > 0)
    assert not subscription.active
    acts: dict[str, Callable[[], None]] = {
        "push": lambda: source.push({"t": 3, "x": 3}),
        "flush": source.flush,
        "punctuate": lambda: source.punctuate(5),
        "complete": source.complete,
        "poll": subscription.poll,
        "push to the other": lambda: other.push({"t": 2000, "x": 1}),
    }
    with pytest.raises(UserFunctionError, match=r"subscribe\(fail\).*'x': 1"):
        acts[act]()
    source.push({"t": 4, "x": 4})
    source.complete()
    subscription.poll()
    assert going_on == [(1, 1, 1), (2, -1, 1), (2, 1, 7), (3, -1, 7), (4, 1, 4), (5, -1, 4)]


def test_stop_on_the_timer_does_not_wait_for_itself() -> None:
    source = source_of("1ms")
    calls: list[int] = []

    def once(frame: pl.DataFrame) -> None:
        subscription.stop()
        calls.append(frame.height)

    subscription = source.subscribe(once)
    source.push({"t": [1, 2], "x": [1, 2]})
    assert eventually(lambda: calls == [1])


def test_rows_gather_while_a_batch_is_under_way() -> None:
    source, entered, leave = source_of("1ms"), threading.Event(), threading.Event()
    calls: list[int] = []

    def slow(frame: pl.DataFrame) -> None:
        calls.append(frame.height)
        entered.set()
        assert leave.wait(LONG)

    subscription = source.subscribe(slow, emit="closed")
    source.push({"t": [0, 1], "x": [0, 0]})
    assert entered.wait(LONG)
    for t in range(2, 50):
        source.push({"t": t, "x": t})
    assert source.counts["waiting"] == 48
    leave.set()
    assert eventually(lambda: sum(calls) == 49)
    assert len(calls) <= 3
    subscription.stop()
