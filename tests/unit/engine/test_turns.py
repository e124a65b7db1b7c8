"""Threads take turns: no two run the queries of one group, and none waits while another waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine.turns import Turn, inside_a_turn, taking_turns
from squill.pushed import PushedSource

LONG = 20.0
SCHEMA = {"t": pl.Int64, "x": pl.Int64}


def in_threads(*calls: Callable[[], None]) -> None:
    """Run these at once; a deadlock fails the test."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads), "they wait for each other"
    assert not errors, errors


def test_work_asked_for_inside_is_done_before_the_turn_ends() -> None:
    turn, done = Turn(), []

    def outer() -> None:
        turn.run(lambda: done.append("inner"))
        assert inside_a_turn()
        done.append("outer")

    turn.run(outer)
    assert done == ["outer", "inner"]
    assert not inside_a_turn()
    assert not turn.mine


def test_errors_come_after_all_work_is_done() -> None:
    turn, done = Turn(), []

    def failing() -> None:
        turn.run(lambda: done.append("asked"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turn.run(failing)
    assert done == ["asked"]
    turn.run(lambda: done.append("free"))
    assert done == ["asked", "free"]


def test_joined_groups_are_one() -> None:
    turns = [Turn() for _ in range(4)]
    with taking_turns(turns[:2]), taking_turns(turns[2:]):
        pass
    with taking_turns([turns[1], turns[3]]):
        assert all(turn.mine for turn in turns)
    assert len({id(turn.root) for turn in turns}) == 1


def test_inside_a_turn_a_busy_group_is_not_waited_for() -> None:
    mine, busy = Turn(), Turn()
    held, leave = threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        held.set()
        leave.wait(LONG)

    def ask() -> None:
        assert held.wait(LONG)

        def inside() -> None:
            with taking_turns([busy]) as ours:
                assert not ours
            busy.run(lambda: done.append("left to the other"))
            assert done == []
            leave.set()

        mine.run(inside)

    in_threads(lambda: busy.run(hold), ask)
    assert done == ["left to the other"]


def test_four_threads_push_into_one_source() -> None:
    source = sq.source(SCHEMA, start="t", disorder=sq.drop(wait=10_000))
    running = threading.Lock()
    rows: list[Any] = []

    def alone(frame: pl.DataFrame) -> None:
        assert running.acquire(blocking=False), "two calls at once"
        rows.extend(frame.rows())
        running.release()

    source.subscribe(alone, emit="closed")
    source.where(sq.col("x") >= 0).subscribe(alone, emit="closed")

    def push(number: int) -> Callable[[], None]:
        def run() -> None:
            for t in range(100):
                source.push({"t": [t, t], "x": [number, number]})

        return run

    in_threads(*(push(number) for number in range(4)))
    source.complete()
    assert sorted(rows) == sorted((t, t + 1, number) for t in range(100) for number in range(4) for _ in range(4))


@pytest.mark.parametrize("max_delay", [None, "1ms"])
def test_four_threads_push_into_the_two_sources_of_a_join(max_delay: str | None) -> None:
    left, right = (sq.source(SCHEMA, start="t", disorder=sq.drop(wait=10_000), max_delay=max_delay) for _ in range(2))
    rows: list[Any] = []
    left.join(right, on="x").subscribe(lambda frame: rows.extend(frame.rows()), emit="closed")

    def push(source: PushedSource, number: int) -> Callable[[], None]:
        def run() -> None:
            for t in range(50):
                source.push({"t": t, "x": number})

        return run

    in_threads(*(push(source, number) for source in (left, right) for number in range(2)))
    left.complete()
    right.complete()
    assert sorted(rows) == [(t, t + 1, number) for t in range(50) for number in range(2)]


def test_two_sources_whose_functions_push_into_each_other() -> None:
    # Two groups, each run by a thread of its own: taking the other's lock would end in a deadlock.
    first, second = (sq.source(SCHEMA, start="t", disorder=sq.adjust(), lifetime="open") for _ in range(2))
    both_inside = threading.Barrier(2)
    counts = {"first": 0, "second": 0}

    def crossing(name: str, other: PushedSource) -> Callable[[pl.DataFrame], None]:
        def function(frame: pl.DataFrame) -> None:
            counts[name] += frame.height
            if counts[name] == frame.height:
                both_inside.wait(LONG)
                other.push({"t": 100, "x": 1})

        return function

    first.subscribe(crossing("first", second))
    second.subscribe(crossing("second", first))
    in_threads(lambda: first.push({"t": [1, 2], "x": [0, 0]}), lambda: second.push({"t": [1, 2], "x": [0, 0]}))
    first.complete()
    second.complete()
    assert counts == {"first": 3, "second": 3}


def test_stop_returns_when_the_function_is_not_running_any_more() -> None:
    source = sq.source(SCHEMA, start="t")
    inside, leave = threading.Event(), threading.Event()
    running: list[bool] = []

    def slow(frame: pl.DataFrame) -> None:
        running.append(True)
        inside.set()
        leave.wait(LONG)
        running.pop()

    subscription = source.subscribe(slow)

    def stop() -> None:
        assert inside.wait(LONG)
        threading.Timer(0.01, leave.set).start()
        subscription.stop()
        assert running == []

    in_threads(lambda: source.push({"t": [1, 2], "x": [1, 2]}), stop)
