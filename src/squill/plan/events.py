"""Single events as Python values, for tests, examples and `collect_events`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from squill.plan.nodes.sources import Disorder
from squill.time import Duration

__all__ = [
    "EndEdge", "Event", "Interval", "Point", "Punctuation", "StartEdge",
    "adjust", "drop", "end_edge", "interval", "point", "punctuation", "start_edge", "throw",
]  # fmt: skip


@dataclass(frozen=True)
class Point:
    """An event that lives for one tick."""

    start: Any
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Interval:
    """An event that lives from `start` up to, not including, `end`; None is for ever."""

    start: Any
    end: Any
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StartEdge:
    """An event that has begun and whose end is not known yet."""

    start: Any
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EndEdge:
    """The end, at `end`, of the event with this payload that began at `start`."""

    end: Any
    start: Any
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Punctuation:
    """The promise that nothing before `time` will follow."""

    time: Any


Event = Point | Interval | StartEdge | EndEdge | Punctuation


def point(t: Any, /, **payload: Any) -> Point:
    """Return an event that lives for the tick `t`."""
    return Point(t, payload)


def interval(s: Any, e: Any, /, **payload: Any) -> Interval:
    """Return an event that lives in [s, e); e = None is for ever."""
    return Interval(s, e, payload)


def start_edge(t: Any, /, **payload: Any) -> StartEdge:
    """Return the start of an event whose end edge follows later, or never."""
    return StartEdge(t, payload)


def end_edge(t: Any, start: Any, /, **payload: Any) -> EndEdge:
    """Return the end at `t` of the event with this payload that began at `start`."""
    return EndEdge(t, start, payload)


def punctuation(t: Any, /) -> Punctuation:
    """Return the promise that nothing before `t` will follow; None is the end of time."""
    return Punctuation(t)


def throw() -> Disorder:
    """Refuse late events with a `LateEventError`."""
    return Disorder(policy="throw")


def drop(wait: Duration = 0) -> Disorder:
    """Leave late events out and count them; stragglers are waited for during `wait` of event time."""
    return Disorder(policy="drop", wait=wait)


def adjust(wait: Duration = 0) -> Disorder:
    """Move late starts to the current time; stragglers are waited for during `wait` of event time."""
    return Disorder(policy="adjust", wait=wait)
