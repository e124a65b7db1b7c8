"""How rows and time enter a shard, epoch by epoch: one kind of leaf for each kind of input.

A leaf takes what its order says and gives the batches of the epoch, in sync order, and the time up to which they are
complete. What comes too early for that time waits in the leaf, which is saved with the shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.disorder import DisorderBuffer
from squill.engine.late_rows import late_frame
from squill.engine.operator import Belongs, OperatorState
from squill.engine.run import source_arrivals
from squill.engine.time_queue import TimeQueue
from squill.errors import InputError, InternalError, UserFunctionError
from squill.exchange.merge import merge_runs
from squill.plan.build.file_columns import check_columns
from squill.plan.build.sources import to_frame
from squill.plan.live import Partitions
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.nodes.live import LiveSource
from squill.plan.nodes.movement import ShardInput
from squill.plan.schema import Schema
from squill.runtime.live.orders import Late, LiveRead, Moved
from squill.runtime.live.postbox import opened_run
from squill.runtime.shard import read_split
from squill.time import INFINITY, MINUS_INFINITY
from squill.wording import shortened

__all__ = ["EpochInbox", "Leaf", "LiveLeaf", "PartitionRead", "PushedPortion", "leaf_for"]


PARTITIONS = "partitions"
"""The format of a live source of partitions, each of which has its own time."""


class EpochInbox:
    """The batches of one epoch, then the time up to which they are complete."""

    def __init__(self, batches: Iterator[Batch], until: int) -> None:
        self._batches = batches
        self._until = until
        self.clock = MINUS_INFINITY
        self.ended = False

    def take(self) -> Batch | None:
        """Return the next rows, and move the clock; None at the end."""
        for batch in self._batches:
            if len(batch):
                self.clock = int(batch.sync[-1])
                return batch
        self.clock, self.ended = self._until, True
        return None


class Leaf:
    """Base of the leaves."""

    def has_news(self, until: int | None) -> bool:
        """Whether rows or time would enter now; see `inbox`."""
        raise NotImplementedError

    def read(self, order: Any) -> None:
        """Take what the order says."""
        raise NotImplementedError

    def inbox(self, until: int | None) -> EpochInbox:
        """Return what enters now; `until` is the time that all shards together have come to, if that is known."""
        raise NotImplementedError

    def save(self) -> OperatorState:
        return {}

    def load(self, state: OperatorState) -> None:
        """Take the place of the leaf that saved `state`."""

    def keep(self, belongs: Belongs) -> None:
        """Forget the rows that do not belong here; time stays as it is."""

    def clear(self) -> None:
        """Forget all rows; time stays as it is."""


class StoredLeaf(Leaf):
    """Rows that are all there: they enter in the first epoch, and time goes to its end."""

    def __init__(self) -> None:
        self._split: Source | None = None

    def read(self, order: Source) -> None:
        self._split = order

    def has_news(self, until: int | None) -> bool:
        return True

    def inbox(self, until: int | None) -> EpochInbox:
        assert self._split is not None
        return EpochInbox(read_split(self._split), INFINITY)


class MovedLeaf(Leaf):
    """Rows that other shards send; those that some producer may still precede wait."""

    def __init__(self, source: ShardInput) -> None:
        self._schema = source.schema
        self._queue = TimeQueue()
        self._clock = MINUS_INFINITY
        self._order = Moved(runs=(), clock=MINUS_INFINITY)

    def read(self, order: Moved) -> None:
        self._order = order

    def has_news(self, until: int | None) -> bool:
        return bool(self._order.runs) or self._order.clock > self._clock

    def inbox(self, until: int | None) -> EpochInbox:
        clock = self._clock = self._order.clock
        waited = self._queue.pop_until(clock)
        runs = [[waited] if waited is not None else [], *(self._due(run, clock) for run in self._order.runs)]
        self._order = Moved(runs=(), clock=clock)
        return EpochInbox(merge_runs(runs), clock)

    def _due(self, run: Any, clock: int) -> Iterator[Batch]:
        for batch in opened_run(run, self._schema):
            count = int(np.searchsorted(batch.sync, clock, side="right"))
            if count < len(batch):
                self._queue.add(batch.slice(count, len(batch)))
            if count:
                yield batch.slice(0, count)

    def save(self) -> OperatorState:
        return {"queue": self._queue.save(), "clock": self._clock}

    def load(self, state: OperatorState) -> None:
        self._queue.load(state["queue"])
        self._clock = state["clock"]

    def keep(self, belongs: Belongs) -> None:
        self._queue.keep(belongs)

    def clear(self) -> None:
        self._queue = TimeQueue()


class LiveLeaf(Leaf):
    """Rows of a live input, through its policy; the rows of an epoch are never late among themselves."""

    def __init__(self, source: LiveSource) -> None:
        assert source.time is not None
        self._source = source
        wait = source.time.ticks(source.disorder.wait, "stream: wait")
        self._has_partitions = source.format == PARTITIONS
        self._buffer = DisorderBuffer(
            source.disorder.policy,
            wait,
            source.label,
            source.time,
            keep_late=source.keep_late,
            is_told=self._has_partitions,
        )
        self._ready: list[Batch] = []
        self._is_last = False
        self._late_before = 0
        self._entered = MINUS_INFINITY
        """The time that has entered the shard."""
        self.peaks: dict[int, int] = {}
        """Of a source of partitions: the latest start in what was read of each, in this epoch."""
        self.offsets: dict[int, Any] | None = None
        """Of a source of partitions: the offset after what was read of each, in this epoch."""
        self.rows_read = 0

    @property
    def clock(self) -> int:
        """How far the input has come by what this shard has seen of it."""
        return INFINITY if self._is_last else self._buffer.clock

    def read(self, order: LiveRead) -> None:
        self.rows_read, self.offsets, self.peaks = 0, None, {}
        self._keep(self._buffer.punctuate(order.clock) if order.clock > self._buffer.clock else None)
        for batch in self._batches(order.portion):
            self.rows_read += len(batch)
            self._keep(self._buffer.push(batch))
        if order.reaches > self._buffer.clock:
            self._keep(self._buffer.punctuate(order.reaches))
        if order.is_last:
            self._is_last = True
            self._keep(self._buffer.complete())

    def _keep(self, batch: Batch | None) -> None:
        if batch is not None and len(batch):
            self._ready.append(self._wanted(batch))

    def _wanted(self, batch: Batch) -> Batch:
        """Return rows with the columns that the plan reads: frames have all, and who takes the rows expects these."""
        names = self._source.schema.names
        if len(names) == len(batch.columns):
            return batch
        rows = batch.with_columns({name: batch.columns[name] for name in names})
        rows.is_ordered = batch.is_ordered
        return rows

    def _batches(self, portion: Any) -> Iterator[Batch]:
        match portion:
            case None:
                return iter(())
            case PartitionRead():
                return self._partitions(portion)
            case PushedPortion():
                return iter(portion.batches)
            case Source():
                return _arrivals(portion)
        raise InternalError(f"a live input is given {type(portion).__name__}")

    def has_news(self, until: int | None) -> bool:
        return self.rows_read > 0 or max(self.clock, MINUS_INFINITY if until is None else until) > self._entered

    def _partitions(self, portion: PartitionRead) -> Iterator[Batch]:
        """Return the rows of all partitions in the order of time; note how far each has come."""
        batches: list[Batch] = []
        frames, self.offsets = portion.read(self._source)
        for partition, frame in frames.items():
            rows = list(_arrivals(as_stored(self._source, frame)))
            if rows:
                self.peaks[partition] = int(rows[-1].sync[-1])
                batches += rows
        return iter([Batch.concat(batches).sorted_by_sync()] if batches else [])

    def inbox(self, until: int | None) -> EpochInbox:
        if until is not None and until > self._buffer.clock:
            self._keep(self._buffer.punctuate(until))
        ready, self._ready = self._ready, []
        self._entered = self.clock
        return EpochInbox(iter(ready), self.clock)

    def take_late(self) -> Late | None:
        """Return the late rows of this epoch; they are forgotten, but for their number."""
        late = self._buffer.late
        if not len(late):
            return None
        found = Late(count=late.total - self._late_before, rows=late_frame(late, self._source))
        self._late_before = late.total
        late.clear()
        return found

    def save(self) -> OperatorState:
        return {"buffer": self._buffer.save(), "is_last": self._is_last, "entered": self._entered}

    def load(self, state: OperatorState) -> None:
        self._buffer.load(state["buffer"])
        self._is_last, self._entered = state["is_last"], state["entered"]
        self._late_before = self._buffer.late.total

    def clear(self) -> None:
        self._buffer.clear()
        self._late_before = 0


def leaf_for(source: Source) -> Leaf:
    """Return the leaf of a source of a fragment."""
    match source:
        case ShardInput():
            return MovedLeaf(source)
        case LiveSource():
            return LiveLeaf(source)
    return StoredLeaf()


def _arrivals(source: Source) -> Iterator[Batch]:
    if isinstance(source, FileSource):
        for path in source.paths:
            check_columns(path, source, f"stream {source.label!r}")
        if not source.paths:
            return
    for arrival in source_arrivals(source, DEFAULT_BATCH_ROWS):
        if arrival.batch is not None:
            yield arrival.batch


def as_stored(source: LiveSource, frame: pl.DataFrame) -> FrameSource:
    """Return rows of a live source as a stored one: times and checks are those of all stored rows."""
    return FrameSource(
        label=source.label,
        columns=source.columns,
        lifetime=source.lifetime,
        promises=source.promises,
        frame=frame,
        frame_id=0,
    )


class PushedPortion:
    """Rows that the program has pushed, with their lifetimes, in sync order."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches


class PartitionRead:
    """Partitions of a user's own source, each from an offset on."""

    def __init__(self, given: Partitions, offsets: dict[int, Any]) -> None:
        self._given = given
        self._offsets = offsets

    def read(self, source: LiveSource) -> tuple[dict[int, pl.DataFrame], dict[int, Any]]:
        """Return by partition the rows, and the offset after them, of those that had any."""
        found: dict[int, pl.DataFrame] = {}
        reached: dict[int, Any] = {}
        for partition, offset in self._offsets.items():
            frames, rows = [], 0
            for item in self._items(partition, offset):
                frame, reached[partition] = _checked_item(item, partition, source.columns)
                frames.append(frame)
                rows += frame.height
                if rows >= self._given.rows_per_epoch:
                    break
            if frames:
                found[partition] = pl.concat(frames)
        return found, reached

    def _items(self, partition: int, offset: Any) -> Iterator[Any]:
        try:
            yield from self._given.open(partition, offset)
        except Exception as error:
            raise UserFunctionError(
                f"partitions: partition {partition} from {offset!r} raised {type(error).__name__}: {error}",
                "once it can be read, start again: it is asked for the same rows.",
            ) from error


def _checked_item(item: Any, partition: int, columns: Schema) -> tuple[pl.DataFrame, Any]:
    where = f"partitions: partition {partition}"
    if not isinstance(item, tuple) or len(item) != 2:
        raise InputError(f"{where} gave {shortened(item)}", "yield pairs: rows, and the offset after them.")
    frame = to_frame(item[0], where)
    if list(frame.columns) != list(columns):
        raise InputError(
            f"{where} gave the columns {', '.join(frame.columns)}; the source's are {', '.join(columns)}",
            "yield the same columns each time.",
        )
    different = [name for name, dtype in columns.items() if frame.schema[name] != dtype]
    if different:
        name = different[0]
        raise InputError(
            f"{where}: column {name!r} is {frame.schema[name]}, it was {columns[name]}", "yield the same types."
        )
    try:
        json.dumps(item[1], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where} gave the offset {shortened(item[1])}",
            "use what JSON can say: numbers, text, lists and dicts of these.",
        ) from error
    return frame, item[1]
