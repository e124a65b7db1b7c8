"""Sources: tables row by row, and single events in arrival order under a disorder policy."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from squill.errors import InputError, LateEventError
from squill.plan.build.folder_columns import file_rows
from squill.plan.events import EndEdge, Point, Punctuation, StartEdge
from squill.plan.nodes import EventsSource, FileSource, FrameSource, Source
from squill.testing.reference.rows import Row, checked, identity, ticks_of, typed_frame
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["events_source", "file_source", "frame_source"]


def frame_source(node: FrameSource) -> list[Row]:
    return _table(node, node.frame if node.predicate is None else node.frame.filter(node.predicate.expr))


def file_source(node: FileSource) -> list[Row]:
    files = [file_rows(node, path).select(node.columns.names).collect() for path in node.paths]
    frame = pl.concat(files)
    return _table(node, frame if node.predicate is None else frame.filter(node.predicate.expr))


def _table(node: Source, frame: pl.DataFrame) -> list[Row]:
    # Python has no word for the times near the ends of a Datetime, so only the payload's columns are read.
    columns = [frame[name].to_list() for name in node.schema]
    payloads = [
        {name: column[row] for name, column in zip(node.schema, columns, strict=True)} for row in range(frame.height)
    ]
    if node.lifetime is None:
        return [Row(MINUS_INFINITY, INFINITY, payload) for payload in payloads]
    # A constant is as long as the columns beside it.
    starts = ticks_of(frame.with_columns(time=node.lifetime.start.expr)["time"])
    ends: list[int | None] = [None] * len(starts)
    if node.lifetime.end is not None:
        ends = ticks_of(frame.with_columns(time=node.lifetime.end.expr)["time"])
    point = node.lifetime.end is None and node.lifetime.kind == "point"
    rows = []
    for start, end, payload in zip(starts, ends, payloads, strict=True):
        if start is None:
            raise InputError(f"source {node.label!r}: no start in {payload}", "fill or filter nulls.")
        checked(start, node.label)
        last = checked(start + 1, node.label) if point else INFINITY if end is None else end
        rows.extend(_lifetime(node, Row(start, last, payload)))
    return rows


def _lifetime(node: Source, row: Row) -> list[Row]:
    """Return the row, or nothing when its lifetime is empty."""
    if row.end < row.start:
        raise InputError(f"source {node.label!r}: {row} ends before it starts", "swap or correct the times.")
    return [row] if row.start < row.end else []


@dataclass(frozen=True)
class Arrival:
    """One row of the input: what it is, when it takes effect, and the lifetime it speaks of."""

    kind: str
    sync: int
    row: Row


@dataclass
class Ingress:
    """The disorder policies, one row at a time in arrival order.

    Late rows leave at once; the others wait until the clock reaches their sync and leave in sync order, rows
    of equal sync in order of arrival. Start edges meet their end edges when they leave, first in, first out
    among equal (start, payload). Ends meet the late starts first (`moved`: with the start they were moved to,
    None when they were dropped), then those that were in time (`open`).
    """

    node: EventsSource
    wait: int
    highest: int | None = None
    punctuated: int = MINUS_INFINITY
    waiting: list[Arrival] = field(default_factory=list)
    open: defaultdict[Any, deque[Row]] = field(default_factory=lambda: defaultdict(deque))
    moved: defaultdict[Any, deque[Row | None]] = field(default_factory=lambda: defaultdict(deque))
    rows: list[Row] = field(default_factory=list)

    @property
    def now(self) -> int:
        seen = MINUS_INFINITY if self.highest is None else self.highest - self.wait
        return max(seen, self.punctuated)

    def punctuate(self, t: int) -> None:
        self.punctuated = max(self.punctuated, t)
        self.release(self.now)

    def arrive(self, arrival: Arrival) -> None:
        if arrival.sync < self.now:
            self.late(arrival)
        else:
            self.highest = arrival.sync if self.highest is None else max(self.highest, arrival.sync)
            self.waiting.append(arrival)
        self.release(self.now)

    def late(self, arrival: Arrival) -> None:
        policy, time = self.node.disorder.policy, self.node.time_type
        if policy == "throw":
            shown = time.show(arrival.sync), time.show(self.now)
            raise LateEventError(self.node.label, str(arrival.row.payload), *shown)
        if arrival.kind == "end":
            self.leave(replace(arrival, sync=self.now))
            return
        stays = policy == "adjust" and arrival.row.end > self.now
        row = replace(arrival.row, start=self.now) if stays else None
        if arrival.kind == "start":
            self.moved[self.match(arrival)].append(row)
        elif row is not None:
            self.rows.append(row)

    def release(self, until: int) -> None:
        ready = sorted((item for item in self.waiting if item.sync <= until), key=lambda item: item.sync)
        self.waiting = [item for item in self.waiting if item.sync > until]
        for item in ready:
            self.leave(item)

    def match(self, arrival: Arrival) -> Any:
        return arrival.row.start, identity(arrival.row.payload)

    def leave(self, arrival: Arrival) -> None:
        if arrival.kind == "interval":
            self.rows.append(arrival.row)
        elif arrival.kind == "start":
            self.open[self.match(arrival)].append(arrival.row)
        else:
            self.end(arrival)

    def end(self, arrival: Arrival) -> None:
        match = self.match(arrival)
        if not self.moved[match] and not self.open[match]:
            if self.node.disorder.policy == "throw":
                raise InputError(
                    f"source {self.node.label!r}: the end edge of {arrival.row} has no start edge before it",
                    "give the start edge with the same start and payload first.",
                )
            return
        begun = self.moved[match].popleft() if self.moved[match] else self.open[match].popleft()
        if begun is not None and arrival.row.start < arrival.row.end:
            self.rows.append(begun.living(begun.start, max(arrival.sync, begun.start + 1)))

    def complete(self) -> list[Row]:
        self.release(INFINITY)
        endless = [row for queues in (self.open, self.moved) for queue in queues.values() for row in queue]
        return self.rows + [row for row in endless if row is not None]


def events_source(node: EventsSource) -> list[Row]:
    time = node.time_type
    ingress = Ingress(node, time.ticks(node.disorder.wait, "wait"))

    def instant(value: object, what: str) -> int:
        return INFINITY if value is None else time.instant(value, what)

    for event in node.events:
        if isinstance(event, Punctuation):
            ingress.punctuate(instant(event.time, "punctuation"))
            continue
        # Through a frame, so that values are of the column's type: 1 in a Float64 column is 1.0.
        payload = dict(typed_frame([event.payload], node.schema).row(0, named=True)) if node.schema else {}
        start = time.instant(event.start, "start")
        if isinstance(event, Point):
            ingress.arrive(Arrival("interval", start, Row(start, checked(start + 1, "end"), payload)))
        elif isinstance(event, StartEdge):
            ingress.arrive(Arrival("start", start, Row(start, INFINITY, payload)))
        elif isinstance(event, EndEdge):
            row = Row(start, instant(event.end, "end"), payload)
            _lifetime(node, row)
            ingress.arrive(Arrival("end", row.end, row))
        else:
            # An interval without end is a start edge whose end edge may still come.
            row = Row(start, instant(event.end, "end"), payload)
            for kept in _lifetime(node, row):
                ingress.arrive(Arrival("start" if kept.endless else "interval", start, kept))
    return ingress.complete()
