"""What each operator means, as a function from folded rows to folded rows.

Each function takes the node and the rows of its input and follows the sentence of the semantics that
defines it; none is incremental and none cares for cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from squill.errors import InputError, UnboundedResultError, UserFunctionError
from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.plan.nodes import (
    AlterLifetime,
    CastTime,
    Chop,
    ClipDuration,
    CountWindow,
    Distinct,
    Extend,
    HoppingWindow,
    MapBatches,
    PerWindow,
    PointAtEnd,
    Quantize,
    Select,
    SelectMany,
    SessionWindow,
    Shift,
    Stitch,
    Union,
    WaitForEnds,
    Where,
    WithDuration,
)
from squill.testing.reference.rows import (
    Row,
    checked,
    evaluate,
    evaluated,
    group_rows,
    lasting,
    moved,
    row_order,
    ticks_of,
    time_series,
    typed_frame,
)
from squill.time import INFINITY, MINUS_INFINITY, NANOSECONDS, TimeType

__all__ = ["OPERATORS"]

Rows = list[Row]


# -- payload ------------------------------------------------------------------------------------------------


def where(node: Where, rows: Rows) -> Rows:
    return [row for row in rows if evaluate([node.predicate], row, node.parent) == (True,)]


def select(node: Select, rows: Rows) -> Rows:
    names = [item.name for item in node.columns]
    return [
        Row(row.start, row.end, dict(zip(names, evaluate(node.columns, row, node.parent), strict=True))) for row in rows
    ]


def select_many(node: SelectMany, rows: Rows) -> Rows:
    return [
        Row(row.start, row.end, {**row.payload, node.column: item})
        for row in rows
        for item in (row.payload[node.column] or [])
    ]


def map_batches(node: MapBatches, rows: Rows) -> Rows:
    mapped = _call_per_row if node.many else _call_per_frame
    return [Row(row.start, row.end, payload) for row in rows for payload in mapped(node, row)]


def _call_per_row(node: MapBatches, row: Row) -> list[dict[str, Any]]:
    try:
        produced = [{**item, **_keys(node, row)} for item in node.function(dict(row.payload))]
    except Exception as error:
        raise UserFunctionError(f"select_many: the function failed for {row.payload}: {error}") from error
    return _typed(node, produced)


def _call_per_frame(node: MapBatches, row: Row) -> list[dict[str, Any]]:
    try:
        produced = node.function(typed_frame([row.payload], node.parent.schema))
    except Exception as error:
        raise UserFunctionError(f"map_batches: the function failed for {row.payload}: {error}") from error
    if not isinstance(produced, pl.DataFrame) or produced.height != 1:
        raise UserFunctionError("map_batches: the function must return one row for each row it gets")
    for name, dtype in produced.schema.items():
        if name in node.output and name not in node.keys and dtype != node.output[name]:
            raise UserFunctionError(f"map_batches: the function's column {name!r} is {dtype}")
    return _typed(node, [{**item, **_keys(node, row)} for item in produced.to_dicts()])


def _keys(node: MapBatches, row: Row) -> dict[str, Any]:
    return {name: row.payload[name] for name in node.keys}


def _typed(node: MapBatches, payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    missing = {name for payload in payloads for name in node.output if name not in payload}
    if missing:
        raise UserFunctionError(f"{node.name}: the function's result lacks the columns {sorted(missing)}")
    try:
        return typed_frame(payloads, node.output).to_dicts()
    except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError) as error:
        raise UserFunctionError(f"{node.name}: the function's result does not fit the schema: {error}") from error


# -- lifetimes ----------------------------------------------------------------------------------------------


def with_duration(node: WithDuration, rows: Rows) -> Rows:
    return [kept for row in rows for kept in _lasting(row, row.start, node.duration, row, node)]


def alter_lifetime(node: AlterLifetime, rows: Rows) -> Rows:
    time = _time(node)
    altered = []
    latest = MINUS_INFINITY
    for row in sorted(rows, key=lambda row: row.start):
        (value,) = evaluated([node.start], row, node.parent)
        (start,) = ticks_of(value.cast(time.dtype))
        if start is None or start < latest:
            raise InputError(
                f"alter_lifetime: the new start of {row} is {start}, below an earlier event's {latest}",
                "use a function of sq.start() that never decreases and is never null.",
            )
        latest = start
        altered.extend(_lasting(row, start, node.duration, row, node))
    return altered


def _lasting(
    row: Row, start: int, duration: int | Expression | None, original: Row, node: WithDuration | AlterLifetime
) -> Rows:
    """Return the row living from `start` for the duration; it vanishes when an expression gives 0 or less."""
    if isinstance(duration, Expression):
        (value,) = evaluated([duration], original, node.parent)
        duration = _duration_ticks(value, _time(node))
        if duration is not None and duration <= 0:
            return []
    return [row.living(start, INFINITY if duration is None else lasting(start, duration, node.name))]


def _duration_ticks(value: pl.Series, time: TimeType) -> int | None:
    # In Python's integers, and from the value's own unit: nothing can be too long.
    (counted,) = value.to_physical().to_list()
    if counted is None or time.is_integer:
        return None if counted is None else int(counted)
    assert isinstance(value.dtype, pl.Duration)
    ticks, rest = divmod(counted * NANOSECONDS[value.dtype.time_unit], time.tick_nanoseconds)
    if rest:
        raise InputError(f"the duration {value[0]} is not a whole number of ticks of {time}", "round it.")
    return ticks


def _time(node: Node) -> TimeType:
    assert node.time is not None
    return node.time


def shift(node: Shift, rows: Rows) -> Rows:
    return [row.living(moved(row.start, node.by, "shift"), moved(row.end, node.by, "shift")) for row in rows]


def extend(node: Extend, rows: Rows) -> Rows:
    extended = [row.living(row.start, moved(row.end, node.by, "extend")) for row in rows]
    return [row for row in extended if row.start < row.end]


def clip_duration(node: ClipDuration, rows: Rows) -> Rows:
    clipped = []
    for row in rows:
        lasting(row.start, 0, "clip")
        # In Python's integers: a limit beyond the end of time clips nothing that ends, and what never ends has
        # no end to be given.
        latest = row.start + node.limit
        clipped.append(row.living(row.start, checked(latest, "clip") if row.endless else min(row.end, latest)))
    return clipped


def point_at_end(_node: PointAtEnd, rows: Rows) -> Rows:
    return [row.living(row.end, checked(row.end + 1, "point_at_end")) for row in rows if not row.endless]


def chop(node: Chop, rows: Rows) -> Rows:
    pieces = []
    for row in rows:
        if (row.endless and node.until is None) or row.start == MINUS_INFINITY:
            raise UnboundedResultError(
                f"chop: {row} never ends, so it has infinitely many pieces",
                "clip(…) it before, or give it an end.",
            )
        start = row.start
        last = row.end - 1 if node.until is None else min(row.end - 1, node.until)
        while (cut := first_after(start, node.period, node.offset)) <= last:
            pieces.append(row.living(start, cut))
            start = cut
        pieces.append(row.living(start, row.end))
    return pieces


def first_after(x: int, step: int, offset: int) -> int:
    """Return the smallest offset + k·step above x."""
    return offset + ((x - offset) // step + 1) * step


def first_not_before(x: int, step: int, offset: int) -> int:
    """Return the smallest offset + k·step at or above x."""
    return first_after(x - 1, step, offset)


def last_not_after(x: int, step: int, offset: int) -> int:
    """Return the largest offset + k·step at or below x."""
    return offset + (x - offset) // step * step


def stitch(_node: Stitch, rows: Rows) -> Rows:
    return [merged for equal in group_rows(rows) for merged in _stitch_equal(equal)]


def _stitch_equal(rows: Rows) -> Rows:
    """Merge rows of one payload, instant by instant.

    Of the rows that end at t, as many as start at t go on, those that began earliest; the others end. What
    goes on and what begins at t share the pieces that start at t first in, first out: the earliest beginning
    takes the earliest end.
    """
    finished = []
    ending: dict[int, list[int]] = {}
    for t in sorted({t for row in rows for t in (row.start, row.end)}):
        pieces = sorted(row.end for row in rows if row.start == t)
        begun = sorted(ending.pop(t, []))
        finished += [rows[0].living(start, t) for start in begun[len(pieces) :]]
        going_on = begun[: len(pieces)]
        starts = going_on + [t] * (len(pieces) - len(going_on))
        for start, end in zip(starts, pieces, strict=True):
            ending.setdefault(end, []).append(start)
    return finished


def quantize(node: Quantize, rows: Rows) -> Rows:
    step = node.period if node.progress is None else node.progress
    quantized = []
    for row in rows:
        start = last_not_after(row.start, step, node.offset)
        end = INFINITY
        if not row.endless:
            reach = max(row.end + node.period - 1, row.start + node.size)
            end = checked(last_not_after(reach, node.period, node.offset + node.size), "quantize")
        quantized.append(row.living(checked(start, "quantize"), end))
    return quantized


def wait_for_ends(_node: WaitForEnds, rows: Rows) -> Rows:
    return rows


def cast_time(node: CastTime, rows: Rows) -> Rows:
    multiply, divide = node.factor

    def rescaled(t: int, up: int) -> int:
        infinite = t in (INFINITY, MINUS_INFINITY)
        return t if infinite else checked((t * multiply + up * (divide - 1)) // divide, "cast_time")

    return [row.living(rescaled(row.start, 0), rescaled(row.end, 1)) for row in rows]


# -- windows ------------------------------------------------------------------------------------------------


def hopping_window(node: HoppingWindow, rows: Rows) -> Rows:
    g = first_after if node.closed == "left" else first_not_before
    placed = []
    for row in rows:
        lasting(row.start, 0, "hopping_window")
        start = checked(g(row.start, node.hop, node.offset), "hopping_window")
        end = checked(g(row.start + node.size, node.hop, node.offset), "hopping_window")
        placed.append(row.living(start, end))
    return [row for row in placed if row.start < row.end]


def count_window(node: CountWindow, rows: Rows) -> Rows:
    counted = []
    for group in group_rows(rows, node.keys):
        events = sorted(group, key=lambda row: row_order(row, node.parent))
        for number, row in enumerate(events):
            later = number + node.count
            end = events[later].start if later < len(events) else INFINITY
            counted.append(row.living(row.start, end))
    return [row for row in counted if row.start < row.end]


def session_window(node: SessionWindow, rows: Rows) -> Rows:
    ended = []
    for group in group_rows(rows, node.keys):
        events = sorted(group, key=lambda row: row.start)
        for session, end in _sessions(events, node.timeout, node.max_duration):
            if node.rows == "final":
                ended += [row.living(end, checked(end + 1, "session_window")) for row in session]
            else:
                ended += [row.living(row.start, end) for row in session]
    return ended


def _sessions(events: Rows, timeout: int, longest: int | None) -> list[tuple[Rows, int]]:
    """Return the sessions of events in order of start, each with its end."""
    sessions: list[tuple[Rows, int]] = []
    open_session: Rows = []
    quiet, limit = MINUS_INFINITY, INFINITY
    for row in events:
        t = row.start
        lasting(t, 0, "session_window")
        if open_session and t < min(quiet, limit):
            open_session.append(row)
        else:
            if open_session:
                sessions.append((open_session, min(quiet, limit)))
            was_cut = bool(open_session) and t < quiet
            open_session = [row]
            if longest is not None:
                limit = first_after(t, longest, 0) if was_cut else first_not_before(t + longest, longest, 0)
        quiet = checked(t + timeout, "session_window")
    if open_session:
        sessions.append((open_session, min(quiet, limit)))
    return sessions


def per_window(node: PerWindow, rows: Rows) -> Rows:
    size, hop, offset = node.window.size, node.window.hop, node.window.offset
    windows = []
    for row in rows:
        end = first_not_before(row.start, hop, offset)
        while end < row.end:
            bounds = time_series("", [checked(end - size, "per_window"), end], node.time).to_list()
            columns = {**row.payload, "window_start": bounds[0], "window_end": bounds[1]}
            windows.append(Row(end, checked(end + hop, "per_window"), {name: columns[name] for name in node.schema}))
            end += hop
    return windows


# -- several rows or inputs ---------------------------------------------------------------------------------


def distinct(_node: Distinct, rows: Rows) -> Rows:
    parts = []
    for equal in group_rows(rows):
        ordered = sorted(equal, key=lambda row: row.start)
        part = ordered[0]
        for row in ordered[1:]:
            if row.start <= part.end:
                part = part.living(part.start, max(part.end, row.end))
            else:
                parts.append(part)
                part = row
        parts.append(part)
    return parts


def union(_node: Union, *inputs: Rows) -> Rows:
    return [row for rows in inputs for row in rows]


OPERATORS: dict[type[Node], Callable[..., Rows]] = {
    AlterLifetime: alter_lifetime,
    CastTime: cast_time,
    Chop: chop,
    ClipDuration: clip_duration,
    CountWindow: count_window,
    Distinct: distinct,
    Extend: extend,
    HoppingWindow: hopping_window,
    MapBatches: map_batches,
    PerWindow: per_window,
    PointAtEnd: point_at_end,
    Quantize: quantize,
    Select: select,
    SelectMany: select_many,
    SessionWindow: session_window,
    Shift: shift,
    Stitch: stitch,
    Union: union,
    WaitForEnds: wait_for_ends,
    Where: where,
    WithDuration: with_duration,
}
