"""The one assertion: two answers hold the same multiset of (start, end, payload), once edges are folded."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from squill.plan.build.events import events_source
from squill.plan.events import Event, throw
from squill.plan.nodes import EventsSource
from squill.stream import Stream
from squill.testing.reference.rows import Row, identity, ticks_of
from squill.testing.reference.sources import events_source as fold_events
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Answer", "assert_same_events"]

Answer = pl.DataFrame | Stream | Iterable[Row] | Iterable[Event]
"""What can be compared: frames as `collect` returns them, streams (which are run), rows, single events."""

SHOWN = 10
Entry = tuple[int | None, int | None, dict[str, Any]]


@dataclass(frozen=True)
class Tolerance:
    """How far apart floats may be that count as equal."""

    relative: float
    absolute: float

    def close(self, left: float, right: float) -> bool:
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        if math.isinf(left) or math.isinf(right):
            return left == right
        return abs(left - right) <= max(self.absolute, self.relative * max(abs(left), abs(right)))


def assert_same_events(left: Answer, right: Answer, *, relative: float = 1e-9, scale: float = 1.0) -> None:
    """Raise unless both hold the same events, in any order.

    Floats may differ by `relative` of their size, or of `scale`: give the sum of the magnitudes that were
    added up when large numbers cancel. NaN equals NaN. Columns and their types must agree where both sides
    have a schema. Times are not compared where one side has none (relational answers, `per_window`).

    Raises
    ------
    AssertionError
        With the rows that only one side has.

    Examples
    --------
    >>> from squill.testing import Row
    >>> assert_same_events([Row(1, 5, {"x": 1})], [Row(1, 5, {"x": 2})])
    Traceback (most recent call last):
        ...
    AssertionError: the answers differ: 1 of 1 rows only left, 1 of 1 only right
    only left:
        [1, 5) {'x': 1}
    only right:
        [1, 5) {'x': 2}
    """
    left_schema, left_entries = _entries(left)
    right_schema, right_entries = _entries(right)
    if left_schema is not None and right_schema is not None and left_schema != right_schema:
        raise AssertionError(f"the columns differ:\nleft:  {left_schema}\nright: {right_schema}")
    if not (_timed(left_entries) and _timed(right_entries)):
        left_entries = [(None, None, payload) for _, _, payload in left_entries]
        right_entries = [(None, None, payload) for _, _, payload in right_entries]
    only_left, only_right = _difference(left_entries, right_entries, Tolerance(relative, relative * scale))
    if only_left or only_right:
        counts = (
            f"{len(only_left)} of {len(left_entries)} rows only left, "
            f"{len(only_right)} of {len(right_entries)} only right"
        )
        raise AssertionError(
            f"the answers differ: {counts}\n{_listed('left', only_left)}\n{_listed('right', only_right)}"
        )


def _entries(answer: Answer) -> tuple[dict[str, pl.DataType] | None, list[Entry]]:
    if isinstance(answer, Stream):
        answer = answer.collect()
    if isinstance(answer, pl.DataFrame):
        return dict(answer.schema), _frame_entries(answer)
    items = list(answer)
    if all(isinstance(item, Row) for item in items):
        return None, [(item.start, item.end, item.payload) for item in items if isinstance(item, Row)]
    return None, _folded([item for item in items if not isinstance(item, Row)])


def _frame_entries(frame: pl.DataFrame) -> list[Entry]:
    payloads = frame.drop("start", "end", strict=False)
    if not {"start", "end"} <= set(frame.columns):
        return [(None, None, row) for row in frame.iter_rows(named=True)]
    starts, ends = ticks_of(frame["start"]), ticks_of(frame["end"])
    rows = payloads.to_dicts() if payloads.width else [{} for _ in starts]
    return [
        (MINUS_INFINITY if start is None else start, INFINITY if end is None else end, row)
        for start, end, row in zip(starts, ends, rows, strict=True)
    ]


def _folded(events: Sequence[Event]) -> list[Entry]:
    node = events_source(events, throw(), None, None)
    assert isinstance(node, EventsSource)
    return [(row.start, row.end, row.payload) for row in fold_events(node)]


def _timed(entries: list[Entry]) -> bool:
    return all(start is not None for start, _, _ in entries)


def _difference(left: list[Entry], right: list[Entry], tolerance: Tolerance) -> tuple[list[Entry], list[Entry]]:
    """Return what is left of both multisets once equal entries are taken away in pairs."""
    waiting: defaultdict[Any, deque[Entry]] = defaultdict(deque)
    for entry in sorted(right, key=_floats):
        waiting[_shape(entry)].append(entry)
    only_left = []
    for entry in sorted(left, key=_floats):
        candidates = waiting[_shape(entry)]
        match = next((item for item in candidates if _close(entry, item, tolerance)), None)
        if match is None:
            only_left.append(entry)
        else:
            candidates.remove(match)
    return only_left, [entry for entries in waiting.values() for entry in entries]


def _shape(value: Any) -> Any:
    """Return what of an entry must be exactly equal: everything but the values of floats."""
    if isinstance(value, float):
        return "float"
    if isinstance(value, (list, tuple, pl.Series)):
        return tuple(_shape(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _shape(item)) for name, item in value.items())
    return identity(value)


def _floats(value: Any) -> list[float]:
    """Return the floats of an entry, in order, NaN as infinity so that they can be sorted."""
    if isinstance(value, float):
        return [math.inf if math.isnan(value) else value]
    if isinstance(value, (list, tuple, pl.Series)):
        return [number for item in value for number in _floats(item)]
    if isinstance(value, dict):
        return _floats(list(value.values()))
    return []


def _close(left: Any, right: Any, tolerance: Tolerance) -> bool:
    if isinstance(left, float):
        return tolerance.close(left, right)
    if isinstance(left, (list, tuple, pl.Series)):
        return all(_close(a, b, tolerance) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return all(_close(value, right[name], tolerance) for name, value in left.items())
    return True


def _listed(side: str, entries: list[Entry]) -> str:
    lines = [f"    {_shown(entry)}" for entry in entries[:SHOWN]]
    if len(entries) > SHOWN:
        lines.append(f"    … and {len(entries) - SHOWN} more")
    return "\n".join([f"only {side}:", *lines])


def _shown(entry: Entry) -> str:
    start, end, payload = entry
    if start is None:
        return str(payload)
    names = {INFINITY: "∞", MINUS_INFINITY: "-∞"}
    return f"[{names.get(start, start)}, {names.get(end or 0, end)}) {payload}"
