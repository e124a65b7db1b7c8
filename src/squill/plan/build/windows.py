"""Build window nodes."""

from __future__ import annotations

from collections.abc import Sequence

from squill.arguments import is_one_of
from squill.errors import PlanError
from squill.plan.build.checks import refuse_objects
from squill.plan.build.lifetime import temporal
from squill.plan.node import Node
from squill.plan.nodes import CountWindow, HoppingWindow, PerWindow, SessionWindow
from squill.time import INFINITY, Duration
from squill.wording import shortened

__all__ = ["count_window", "hopping_window", "per_window", "session_window"]


def hopping_window(
    node: Node, size: Duration, hop: Duration, offset: Duration, closed: str, operator: str = "hopping_window"
) -> Node:
    time = temporal(node, operator)
    if not is_one_of(closed, ("left", "right")):
        raise PlanError(
            f"{operator}: closed is {shortened(closed)}", 'use "left" ([w - size, w)) or "right" ((w - size, w]).'
        )
    return HoppingWindow(
        parent=node,
        size=time.positive(size, f"{operator}: size"),
        hop=time.positive(hop, f"{operator}: hop"),
        offset=time.ticks(offset, f"{operator}: offset"),
        closed=closed,
    )


def count_window(node: Node, keys: Sequence[str], count: int) -> Node:
    temporal(node, "count_window")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < INFINITY:
        raise PlanError(
            f"count_window: n is {shortened(count)}; it must be a whole number of at least 1 and below 2^63",
            "count_window(10)",
        )
    refuse_objects("count_window", node)
    return CountWindow(parent=node, count=count, keys=tuple(keys))


def session_window(
    node: Node, keys: Sequence[str], timeout: Duration, max_duration: Duration | None, rows: str
) -> Node:
    time = temporal(node, "session_window")
    if not is_one_of(rows, ("running", "final")):
        raise PlanError(f"session_window: rows is {shortened(rows)}", 'use "running" or "final".')
    refuse_objects("session_window", node)
    limit = None if max_duration is None else time.positive(max_duration, "session_window: max_duration")
    return SessionWindow(
        parent=node,
        timeout=time.positive(timeout, "session_window: timeout"),
        max_duration=limit,
        rows=rows,
        keys=tuple(keys),
    )


def per_window(node: Node, keys: Sequence[str]) -> Node:
    temporal(node, "per_window")
    return PerWindow.over(node, tuple(keys))
