"""Single events as batches: arrival order in, time order out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.disorder import DisorderBuffer
from squill.engine.ingress import Arrival
from squill.engine.late_rows import late_frame
from squill.plan.events import EndEdge, Event, Interval, Punctuation, StartEdge
from squill.plan.nodes import EventsSource
from squill.time import INFINITY, TimeType

__all__ = ["event_batches", "late_events"]


def event_batches(source: EventsSource, batch_rows: int) -> Iterator[Arrival]:
    """Yield the events in time order under the source's policy, and its punctuations where they stand."""
    # Whoever asks for the late events gets them from `late_events`.
    return _through(_buffer(source, keep_late=0), source, batch_rows)


def late_events(source: EventsSource) -> pl.DataFrame:
    """Return the events that are late, as they arrived, each with how late it was."""
    buffer = _buffer(source, keep_late=len(source.events))
    for _ in _through(buffer, source, DEFAULT_BATCH_ROWS):
        pass
    return late_frame(buffer.late, source)


def _buffer(source: EventsSource, *, keep_late: int) -> DisorderBuffer:
    policy = source.disorder.policy
    wait = source.time.ticks(source.disorder.wait, "wait")
    return DisorderBuffer(policy, wait, source.label, source.time, edges=source.has_edges, keep_late=keep_late)


def _through(buffer: DisorderBuffer, source: EventsSource, batch_rows: int) -> Iterator[Arrival]:
    rows: list[Event] = []
    for event in source.events:
        if isinstance(event, Punctuation):
            yield from _arrivals(buffer, rows, source)
            rows = []
            t = INFINITY if event.time is None else source.time.instant(event.time, "punctuation")
            yield Arrival(buffer.punctuate(t), buffer.clock)
        elif not (isinstance(event, Interval) and event.start == event.end):  # an empty lifetime is no event
            rows.append(event)
            if len(rows) == batch_rows:
                yield from _arrivals(buffer, rows, source)
                rows = []
    yield from _arrivals(buffer, rows, source)
    yield Arrival(buffer.complete(), INFINITY)


def _arrivals(buffer: DisorderBuffer, events: list[Event], source: EventsSource) -> Iterator[Arrival]:
    if events:
        yield Arrival(buffer.push(_batch(events, source)), None)


def _batch(events: list[Event], source: EventsSource) -> Batch:
    times = np.array([_times(event, source.time) for event in events], np.int64)
    columns = {
        name: pl.Series(name, [event.payload[name] for event in events if not isinstance(event, Punctuation)], dtype)
        for name, dtype in source.schema.items()
    }
    return Batch(np.ascontiguousarray(times[:, 0]), np.ascontiguousarray(times[:, 1]), columns)


def _times(event: Event, time: TimeType) -> tuple[int, int]:
    """Return (sync, other) of a row."""
    assert not isinstance(event, Punctuation)
    start = time.instant(event.start, "start")
    if isinstance(event, StartEdge):
        return start, INFINITY
    if isinstance(event, EndEdge):
        return time.instant(event.end, "end"), start
    if isinstance(event, Interval):
        return start, INFINITY if event.end is None else time.instant(event.end, "end")
    return start, start + 1
