"""What came of Ctrl-C, and what came after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squill.runtime.interrupts import to_the_end


def steps(*outcomes: Callable[[], object]) -> Callable[[], object]:
    """Return a step that does another thing each time."""
    left = iter(outcomes)

    def step() -> object:
        return next(left)()

    return step


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ValueError("no luck")


def fail_because_of_an_interrupt() -> None:
    try:
        interrupt()
    except KeyboardInterrupt:
        fail()


@pytest.mark.parametrize("outcome", [interrupt, fail_because_of_an_interrupt])
def test_interrupted_step_is_taken_again(outcome: Callable[[], None]) -> None:
    taken: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        to_the_end(steps(outcome, lambda: taken.append("again")))
    assert taken == ["again"]


def test_failure_after_an_interrupt_is_a_failure() -> None:
    try:
        interrupt()
    except KeyboardInterrupt:
        with pytest.raises(ValueError, match="no luck"):
            to_the_end(steps(fail))
