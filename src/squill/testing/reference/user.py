"""A user's own algorithm: one object per key over the whole of its events, or a function of each snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from squill.errors import UserFunctionError
from squill.plan.nodes import SnapshotApply, UserOperator
from squill.plan.nodes.user import INTERVAL, POINT, UNTIL_NEXT
from squill.testing.reference.rows import Row, checked, group_rows, row_order, typed_frame
from squill.time import INFINITY

__all__ = ["snapshot_apply", "user_operator"]

Rows = list[Row]
Payload = dict[str, Any]


def snapshot_apply(node: SnapshotApply, rows: Rows) -> Rows:
    answers = []
    for group in group_rows(rows, node.keys):
        points = sorted({t for row in group for t in (row.start, row.end)})
        for start, end in itertools.pairwise(points):
            alive = [row for row in group if row.alive(start)]
            if alive:
                returned = node.function(_frame(alive, node))
                answers += [Row(start, end, payload) for payload in _payloads(returned, group[0], node)]
    return answers


def user_operator(node: UserOperator, rows: Rows) -> Rows:
    return [row for group in group_rows(rows, node.keys) for row in _Key(node, group).run()]


class _Key:
    """The life of one key: its instants and timers in order of time."""

    def __init__(self, node: UserOperator, events: Rows) -> None:
        self.node = node
        self.events = events
        self.user: Any = None
        self.finished: Rows = []
        self.open: Rows = []

    def run(self) -> Rows:
        instants = {row.start for row in self.events}
        if self.node.takes_ends:
            instants |= {row.end for row in self.events if not row.endless}
        for t in sorted(instants):
            self.wake_until(t)
            self.instant(checked(t, "operator"))
        self.wake_until(INFINITY - 1)
        return [*self.finished, *self.open]

    def instant(self, t: int) -> None:
        if self.user is None:
            self.user = self.node.make()
        starts = _frame([row for row in self.events if row.start == t], self.node)
        ends = _frame([row for row in self.events if row.end == t], self.node)
        arguments = (starts, ends) if self.node.takes_ends else (starts,)
        self.take(t, self.user.on_instant(t, *arguments))

    def wake_until(self, t: int) -> None:
        while self.user is not None and self.wake_at is not None and self.wake_at <= t:
            now, self.user.wake_at = self.wake_at, None
            self.take(now, self.user.on_time(now))

    @property
    def wake_at(self) -> int | None:
        return getattr(self.user, "wake_at", None)

    def take(self, t: int, returned: Any) -> None:
        if returned is not None:
            made = [self.lived(t, row) for row in _as_rows(returned, self.node)]
            if self.node.lifetime == UNTIL_NEXT:
                self.finished += [row.living(row.start, t) for row in self.open if row.start < t]
                self.open = made
            else:
                self.finished += made
        if self.wake_at is not None and self.wake_at <= t:
            raise UserFunctionError(f"operator: wake_at is {self.wake_at}, not after {t}")
        if not getattr(self.user, "alive", True) and self.wake_at is None and not self.open and not self.is_needed(t):
            self.user = None

    def is_needed(self, t: int) -> bool:
        """Whether an event is alive whose end the object will be told."""
        return self.node.takes_ends and any(row.start <= t < row.end for row in self.events)

    def lived(self, t: int, row: Mapping[str, Any]) -> Row:
        payload = _typed([row], self.events[0], self.node)[0]
        if self.node.lifetime == INTERVAL:
            start, end = row.get("start", t), INFINITY if row["end"] is None else row["end"]
            if not t <= start < end:
                raise UserFunctionError(f"operator: a row made at {t} lives from {start} to {end}")
            return Row(start, end, payload)
        return Row(t, checked(t + 1, "operator") if self.node.lifetime == POINT else INFINITY, payload)


def _frame(rows: Rows, node: UserOperator | SnapshotApply) -> pl.DataFrame:
    """Return the payloads in the order of the rule; those that start or end together are ordered by payload alone."""
    after_start = 1 if isinstance(node, UserOperator) else 0
    ordered = sorted(rows, key=lambda row: row_order(row, node.parent)[after_start:])
    return typed_frame([row.payload for row in ordered], node.parent.schema)


def _as_rows(returned: Any, node: UserOperator | SnapshotApply) -> Sequence[Mapping[str, Any]]:
    if returned is None:
        return []
    if isinstance(returned, pl.DataFrame):
        return returned.to_dicts()
    if isinstance(returned, Mapping):
        return [returned]
    if not isinstance(returned, Iterable):
        raise UserFunctionError(f"{node.name}: {type(returned).__name__} was returned, not rows")
    return list(returned)


def _payloads(returned: Any, member: Row, node: SnapshotApply) -> list[Payload]:
    return _typed(_as_rows(returned, node), member, node)


def _typed(rows: Sequence[Mapping[str, Any]], member: Row, node: UserOperator | SnapshotApply) -> list[Payload]:
    keys = {name: member.payload[name] for name in node.keys}
    missing = {name for row in rows for name in node.own if name not in row}
    if missing:
        raise UserFunctionError(f"{node.name}: the columns {sorted(missing)} are missing")
    return typed_frame([{**row, **keys} for row in rows], node.output).to_dicts()
