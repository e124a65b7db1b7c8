"""Checked arithmetic on arrays of times: infinities stay, a finite time that overflows is an error."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Int64s
from squill.errors import TimeOverflowError
from squill.plan.node import Node
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["refuse_beginningless", "shift_time", "shifted", "time_overflow"]


def time_overflow(node: Node, ticks: int) -> TimeOverflowError:
    """Return the error for an event of the node's input, told by one of its times."""
    time = node.inputs[0].time
    shown = str(ticks) if time is None else time.show(ticks)
    return TimeOverflowError(
        f"{node.name}({node.details()}): the lifetime of the event at {shown} leaves the 64-bit range of times",
        "use shorter durations, or coarser ticks with cast_time(…).",
    )


def shifted(times: Int64s, by: int | Int64s, node: Node) -> Int64s:
    """Return times + by, or raise when a finite time would leave the range."""
    with np.errstate(over="ignore"):
        result = times + by
    infinite = (times == INFINITY) | (times == MINUS_INFINITY)
    wrapped = ((times ^ result) & (by ^ result)) < 0
    bad = (wrapped | (result == INFINITY) | (result <= MINUS_INFINITY)) & ~infinite
    if bad.any():
        raise time_overflow(node, int(times[np.flatnonzero(bad)[0]]))
    return np.where(infinite, times, result) if infinite.any() else result


def refuse_beginningless(starts: Int64s, node: Node) -> None:
    """Raise when the first of these ordered starts is minus infinity, from where no duration leads anywhere."""
    if len(starts) and starts[0] == MINUS_INFINITY:
        raise TimeOverflowError(
            f"{node.name}({node.details()}): an event without a start has no time to count from; relational rows "
            "united with temporal ones begin at minus infinity",
            "give the relational input a time before the union, with start=.",
        )


def shift_time(t: int, by: int) -> int:
    """Return a clock moved by some ticks; infinities stay, and it never leaves the range."""
    if t in (INFINITY, MINUS_INFINITY):
        return t
    return max(min(t + by, INFINITY), MINUS_INFINITY)
