"""Build a source from single events: derive the columns and the time type from Python values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from squill.arguments import checked_label
from squill.errors import InputError, PlanError, TimeTypeError
from squill.plan.events import EndEdge, Event, Interval, Point, Punctuation, StartEdge
from squill.plan.node import Node
from squill.plan.nodes import Disorder, EventsSource
from squill.plan.schema import Schema, checked_schema
from squill.time import TimeType
from squill.wording import shortened

__all__ = ["checked_disorder", "events_source"]


def events_source(
    events: Iterable[Event], disorder: Disorder, name: str | None, schema: Mapping[str, Any] | None
) -> Node:
    if not isinstance(events, Iterable):
        raise PlanError(f"from_events: {shortened(events)} is no list of events", "sq.from_events([sq.point(1, x=2)])")
    listed = tuple(_checked(event) for event in events)
    # An end edge at infinity says that its event never ends, which is so without it.
    listed = tuple(event for event in listed if not (isinstance(event, EndEdge) and event.end is None))
    columns = checked_schema(schema, "from_events") if schema is not None else _payload_schema(listed)
    columns.without_time_names("from_events")
    _check_payloads(listed, columns)
    if schema is not None:
        _check_types(listed, columns)
    time = _time_type(listed)
    for event in listed:
        _check_lifetime(event, time)
    return EventsSource(
        label=checked_label(name, "from_events") or "events",
        columns=columns,
        lifetime=None,
        events=listed,
        events_id=id(listed),
        disorder=checked_disorder(disorder, time, "from_events"),
        has_edges=any(isinstance(event, (StartEdge, EndEdge)) for event in listed),
        time_type=time,
    )


def checked_disorder(disorder: Disorder, time: TimeType, operator: str) -> Disorder:
    """Return the policy with its wait in ticks of this time type."""
    if not isinstance(disorder, Disorder):
        raise PlanError(
            f"{operator}: disorder is {shortened(disorder)}", "use sq.throw(), sq.drop(wait=…) or sq.adjust(wait=…)."
        )
    if time.ticks(disorder.wait, f"{operator}: wait") < 0:
        raise PlanError(f"{operator}: wait is {shortened(disorder.wait)}", "give zero or more.")
    return disorder


def _checked(event: object) -> Event:
    if isinstance(event, (Point, Interval, StartEdge, EndEdge, Punctuation)):
        return event
    raise PlanError(
        f"from_events: {shortened(event)} is not an event",
        "use sq.point, sq.interval, sq.start_edge, sq.end_edge or sq.punctuation.",
    )


def _payload_schema(events: tuple[Event, ...]) -> Schema:
    payloads = [event.payload for event in events if not isinstance(event, Punctuation)]
    if not payloads:
        return Schema()
    try:
        frame = pl.DataFrame(payloads, infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError) as error:
        raise PlanError(
            f"from_events: the payloads do not fit one type per column: {error}", "give schema=."
        ) from error
    return Schema(frame.schema)


def _check_payloads(events: tuple[Event, ...], columns: Schema) -> None:
    names = set(columns)
    for event in events:
        if not isinstance(event, Punctuation) and set(event.payload) != names:
            raise PlanError(
                f"from_events: {shortened(event)} has the columns {sorted(event.payload)}, others have {sorted(names)}",
                "give every event the same columns.",
            )


def _check_types(events: tuple[Event, ...], columns: Schema) -> None:
    for name, dtype in columns.items():
        values = [event.payload[name] for event in events if not isinstance(event, Punctuation)]
        try:
            pl.Series(name, values, dtype)
        except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
            raise PlanError(
                f"from_events: the values of column {name!r} do not fit its type {dtype}: {str(error).splitlines()[0]}",
                "correct the values or schema=.",
            ) from error


def _check_lifetime(event: Event, time: TimeType) -> None:
    if isinstance(event, Punctuation):
        return
    start = time.instant(event.start, "from_events: start")
    end = getattr(event, "end", None)
    if end is None:
        return
    if time.instant(end, "from_events: end") < start:
        raise InputError(f"from_events: {shortened(event)} ends before it starts", "swap or correct the times.")
    if isinstance(event, EndEdge) and time.instant(end, "from_events: end") == start:
        raise InputError(
            f"from_events: {shortened(event)} ends its event where it starts",
            "leave out both edges: an event lives for at least one tick.",
        )


def _time_type(events: tuple[Event, ...]) -> TimeType:
    kinds: set[type] = set()
    for event in events:
        times = (event.time,) if isinstance(event, Punctuation) else (event.start, getattr(event, "end", None))
        kinds.update(type(value) for value in times if value is not None)
    if not kinds or kinds == {int}:
        return TimeType(pl.Int64())
    if kinds == {dt.date}:
        return TimeType(pl.Date())
    if kinds == {dt.datetime}:
        return TimeType(pl.Datetime("us"))
    raise TimeTypeError(
        f"from_events: the times are {', '.join(sorted(kind.__name__ for kind in kinds))}",
        "use one of int, date and datetime for all of them.",
    )
