"""One shard's share of a fragment: take rows from inboxes, push them through the plan, into a sink.

This is all the work there is; runtimes only decide where it happens, and what the inboxes and the sink are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Protocol

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.compile import compile_plan
from squill.engine.operator import Operator, go_on
from squill.engine.run import source_arrivals, waits_for_time
from squill.plan.node import Node
from squill.plan.nodes import FileSource, Source
from squill.plan.nodes.movement import ShardInput
from squill.runtime.report import Work, own_seconds
from squill.time import INFINITY, MINUS_INFINITY, ProgressType

__all__ = ["PASSING_BATCHES", "BatchInbox", "Inbox", "read_split", "rows_per_batch", "run_shard", "shard_steps"]


class Inbox(Protocol):
    """The rows of one input of one shard, in sync order."""

    @property
    def clock(self) -> int:
        """What has been taken up to: no row below it will follow. Infinity is the end."""
        ...

    def take(self) -> list[Batch]:
        """Return the next rows, perhaps none, and move the clock; may wait."""
        ...


class BatchInbox:
    """Batches that are there, or come without waiting for other shards."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = iter(batches)
        self.clock = MINUS_INFINITY

    def take(self) -> list[Batch]:
        for batch in self._batches:
            if len(batch):
                self.clock = batch.last_sync
                return [batch]
        self.clock = INFINITY
        return []

    def close(self) -> None:
        """Let go of what reads the rows, and end its threads: an error would hold on to them."""
        if isinstance(self._batches, Generator):
            self._batches.close()


PASSING_BATCHES = 8
"""How many batches are read as one where rows only pass by: whoever gets a piece of them takes the interpreter's lock
again and again for it, and threads that meet there wait for each other."""
STEP_BATCHES = 16
"""The same over progress: a step is a few pieces, each of which has its price."""


def rows_per_batch(root: Node) -> int:
    """Return how many rows a fragment should take at a time.

    Rows that are dealt to others arrive in pieces, each of which is worked on by itself: two threads took a tenth less
    time for a sum than with pieces of a quarter of this size.
    """
    if isinstance(root.time, ProgressType):
        return STEP_BATCHES * DEFAULT_BATCH_ROWS
    return DEFAULT_BATCH_ROWS if waits_for_time(root) else PASSING_BATCHES * DEFAULT_BATCH_ROWS


def read_split(split: Source, rows: int | None = None) -> Iterator[Batch]:
    """Yield a split's rows in time order, `rows` at a time, as many as the caches hold unless told."""
    if isinstance(split, FileSource) and not split.paths:
        return  # there are fewer files than shards
    for arrival in source_arrivals(split, DEFAULT_BATCH_ROWS if rows is None else rows):
        if arrival.batch is not None:
            yield arrival.batch


def run_shard(root: Node, inboxes: Sequence[Inbox], sink: Operator, work: Work) -> None:
    """Run a fragment to its end; see `shard_steps`."""
    for _ in shard_steps(root, inboxes, sink, work):
        pass


def shard_steps(
    root: Node, inboxes: Sequence[Inbox], sink: Operator, work: Work, checkpoint: Callable[[], None] = go_on
) -> Iterator[None]:
    """Run a fragment to its end, a step at a time, always going on with the input that is furthest behind.

    Of several the one comes first that others wait for (see `reading_order`).
    With the last step it is over: who gets its rows then ends too, and nobody would come back to it.
    `inboxes` stand in the order of the plan's sources; `work` is told what is done. A step may take long, as where a
    few rows have many partners: within it `checkpoint` raises when it is in vain.
    """
    with compile_plan(root, sink, checkpoint) as pipeline:
        inputs = [
            (inbox, entry, not isinstance(source, ShardInput))
            for inbox, (source, entry) in zip(inboxes, pipeline.entries, strict=True)
        ]
        open_inputs: list[tuple[Inbox, Operator, bool]] = [inputs[place] for place in pipeline.in_reading_order]
        _step(open_inputs, work)
        while open_inputs:
            yield
            _step(open_inputs, work)


def _step(open_inputs: list[tuple[Inbox, Operator, bool]], work: Work) -> None:
    current = min(open_inputs, key=lambda item: item[0].clock)
    inbox, entry, is_stored = current
    begin = own_seconds()
    batches = inbox.take()
    seconds = own_seconds() - begin
    if isinstance(inbox, BatchInbox):
        work.read += seconds
    else:
        work.wait += seconds
    for batch in batches:
        work.rows_in += len(batch)
        work.rows_read += len(batch) if is_stored else 0
        entry.push(batch)
    entry.advance(inbox.clock)
    work.clock = min(inbox.clock for inbox, _, _ in open_inputs)
    if inbox.clock == INFINITY:
        open_inputs.remove(current)
