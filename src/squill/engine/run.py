"""Run a plan to its end in this process, on this thread."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from squill.engine.batch import DEFAULT_BATCH_ROWS, LARGE_BATCH_ROWS
from squill.engine.codecs import decoded
from squill.engine.compile import Entry, Pipeline, compile_plan
from squill.engine.egress import CollectSink
from squill.engine.egress_events import EventsSink
from squill.engine.egress_file import FileSink, remove_left_behind
from squill.engine.ingress import Arrival, frame_batches
from squill.engine.ingress_events import event_batches
from squill.errors import InternalError, PlanError, SourceStateError, SquillError
from squill.plan.build.checks import refuse_objects
from squill.plan.events import Event
from squill.plan.node import Node, walk
from squill.plan.nodes import EventsSource, FileSource, FrameSource, PushSource, Source
from squill.plan.nodes.progress import ProgressSource
from squill.plan.paths import written_path
from squill.plan.rewrite import rewrite
from squill.time import INFINITY, MINUS_INFINITY
from squill.wording import shortened

__all__ = [
    "collect", "collect_events", "drive", "drive_stored", "source_arrivals", "steps", "waits_for_time", "write_file",
]  # fmt: skip


def source_arrivals(source: Source, batch_rows: int) -> Iterator[Arrival]:
    """Return a stored source's rows in time order."""
    match source:
        case FrameSource():
            return frame_batches(source, batch_rows)
        case EventsSource():
            return event_batches(source, batch_rows)
        case FileSource():
            from squill.engine.files import file_batches

            return file_batches(source, batch_rows)
        case ProgressSource():
            from squill.engine.progress.ingress import progress_batches

            return progress_batches(source, batch_rows)
        case PushSource():
            raise SourceStateError(
                f"source {source.label!r} is pushed by the program: it has no end to collect up to",
                "subscribe(fn) to the query, then push(…) and complete() the source.",
            )
    raise InternalError(f"{source.name} cannot be read as a stored input")


def drive(pipeline: Pipeline, batch_rows: int = DEFAULT_BATCH_ROWS, *, clocks: bool = True) -> None:
    """Push every source through the pipeline, always the one that is furthest behind, then complete it.

    Of several the one comes first that others wait for, so that these wait for as few rows as can be.

    With `clocks` time advances after every batch, so that results leave early; else only where a source says
    so itself. In the end the operators are gone; the sink has what they gave.
    """
    with pipeline:
        in_turn = [pipeline.entries[place] for place in pipeline.in_reading_order]
        _drive([(source_arrivals(source, batch_rows), entry) for source, entry in in_turn], clocks=clocks)


def drive_stored(pipeline: Pipeline, batch_rows: int = DEFAULT_BATCH_ROWS) -> None:
    """Push the sources that are stored; those that the program pushes are left to it."""
    stored = [(source, entry) for source, entry in pipeline.entries if not isinstance(source, PushSource)]
    _drive([(source_arrivals(source, batch_rows), entry) for source, entry in stored], clocks=True)


def _drive(inputs: list[tuple[Iterator[Arrival], Entry]], *, clocks: bool) -> None:
    for _ in steps(inputs, clocks=clocks):
        pass


def steps(inputs: list[tuple[Iterator[Arrival], Entry]], *, clocks: bool) -> Iterator[None]:
    """Push what is furthest behind, until all inputs are at their end; stop after each push, before reading on.

    An input is read on when it may be the one that is furthest behind: not while the others have yet to come to where
    it has.
    """
    waiting: list[tuple[int, int, Arrival | None, Iterator[Arrival], Entry]] = [
        (MINUS_INFINITY, number, None, arrivals, entry) for number, (arrivals, entry) in enumerate(inputs)
    ]
    while waiting:
        reached, number, arrival, rest, entry = heapq.heappop(waiting)
        if arrival is None:
            _queue(waiting, number, rest, entry)
            continue
        if arrival.batch is not None:
            entry.push(arrival.batch)
            reached = arrival.batch.last_sync
            if clocks:
                entry.advance(reached)
        if arrival.clock is not None:
            entry.advance(arrival.clock)
            reached = max(reached, arrival.clock)
        yield
        heapq.heappush(waiting, (reached, number, None, rest, entry))


def _queue(waiting: list[Any], number: int, rest: Iterator[Arrival], entry: Entry) -> None:
    for arrival in rest:
        if arrival.batch is not None and len(arrival.batch):
            first = arrival.batch.first_sync
        elif arrival.clock is not None:
            first = arrival.clock
        else:
            continue
        heapq.heappush(waiting, (first, number, arrival, rest, entry))
        return
    entry.advance(INFINITY)


def waits_for_time(node: Node) -> bool:
    """Say whether anything in a plan keeps rows until their time has come."""
    return any(item.keeps_state and not item.is_relational for item in walk(node))


def default_rows(node: Node) -> int:
    """Return how many rows a batch should have: many where nothing waits for time, else what the caches hold."""
    return DEFAULT_BATCH_ROWS if waits_for_time(node) else LARGE_BATCH_ROWS


def collect(root: Node, *, sort: bool = False, batch_rows: int | None = None) -> pl.DataFrame:
    """Return the whole answer, ordered by start; with `sort` by start, end, then the columns."""
    if batch_rows is not None and (type(batch_rows) is not int or batch_rows < 1):
        raise PlanError(f"collect: batch_rows is {shortened(batch_rows)}", "give a whole number of at least 1.")
    if sort:
        refuse_objects("collect(sort=True)", root)
    node = rewrite(root)
    sink = CollectSink(node)
    drive(compile_plan(node, sink), batch_rows or default_rows(node))
    frame = sink.frame()
    if sort and frame.width:
        frame = frame.sort(frame.columns, nulls_last=False)
    return decoded(frame, node.codecs)


def collect_events(root: Node) -> list[Event]:
    """Return the rows that flow out of the plan, and the punctuations among them."""
    node = rewrite(root)
    sink = EventsSink(node)
    drive(compile_plan(node, sink), clocks=False)
    return sink.events


def write_file(root: Node, path: str | os.PathLike[str], file_format: str) -> int:
    """Write the answer to a file, in pieces; return the number of rows. A failure leaves no file behind."""
    operator = f"to_{file_format}"
    place = written_path(path, operator, 'give that of a file, such as "out.parquet".')
    node = rewrite(root)
    try:
        remove_left_behind(place)
        sink = FileSink(node, place, file_format)
    except OSError as error:
        raise _unwritable(operator, place, error) from error
    try:
        drive(compile_plan(node, sink))
        return sink.finish()
    except BaseException as error:
        sink.abandon()
        if isinstance(error, OSError) and not isinstance(error, SquillError):
            raise _unwritable(operator, place, error) from error
        raise


def _unwritable(operator: str, place: Path, error: OSError) -> PlanError:
    return PlanError(
        f"{operator}: {str(place)!r} cannot be written: {error.strerror or error}",
        "see to its folder, and that there is room in it, or name another file.",
    )
