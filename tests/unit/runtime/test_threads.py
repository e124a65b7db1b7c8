from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from squill.runtime.threads import run_on_threads


def test_results_come_in_the_order_of_the_work() -> None:
    work = [lambda checkpoint, number=number: number * number for number in range(20)]
    assert run_on_threads(work, threads=3) == [number * number for number in range(20)]


def test_no_more_than_asked_run_at_once() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def work(checkpoint: Callable[[], None]) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)  # long enough for one too many to be seen
        with lock:
            running[0] -= 1

    run_on_threads([work] * 50, threads=2)
    assert most[0] <= 2


def test_first_error_stops_the_others() -> None:
    begun, stopped = threading.Event(), threading.Event()

    def fail(checkpoint: Callable[[], None]) -> None:
        begun.wait(60)
        raise ValueError("broken")

    def go_on(checkpoint: Callable[[], None]) -> None:
        begun.set()
        try:
            while True:
                checkpoint()
        finally:
            stopped.set()

    with pytest.raises(ValueError, match="broken"):
        run_on_threads([go_on, fail], threads=2)
    assert stopped.is_set()


def test_work_that_has_not_begun_is_not_begun_after_an_error() -> None:
    begun: list[int] = []

    def fail(checkpoint: Callable[[], None]) -> None:
        raise ValueError("broken")

    work = [fail, *[lambda checkpoint, number=number: begun.append(number) for number in range(1_000)]]
    with pytest.raises(ValueError, match="broken"):
        run_on_threads(work, threads=1)
    assert len(begun) < 1_000


def test_error_in_the_progress_callback_stops_the_work() -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_on_threads([lambda checkpoint: 1, lambda checkpoint: 2], threads=1, on_done=interrupt)
    assert threading.active_count() == before


def test_interrupt_by_the_first_moment_of_the_work_leaves_no_thread() -> None:
    """Threads begin while others are still being started: an interrupt may come in between."""
    begun: list[int] = []

    def interrupt(checkpoint: Callable[[], None]) -> None:
        begun.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        begun.pop()

    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            run_on_threads([interrupt], threads=1)
        assert not begun, "somebody is still at work"


def test_ctrl_c_ends_work_that_has_long_to_go() -> None:
    """Polars lets the system go on with what SIGINT interrupts, so who waited for threads did not hear of it."""

    def work(checkpoint: Callable[[], None]) -> None:
        for _ in range(500):
            checkpoint()
            time.sleep(0.02)

    begin = time.monotonic()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run_on_threads([work, work], threads=2)
    assert time.monotonic() - begin < 5
