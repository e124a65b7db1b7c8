"""What runs in a Spark task when rows move through Spark's own shuffle.

A task takes rows from the shuffle and gives rows to it, each of which is an encoded batch (a *parcel*) with the
number of the task that is to have it. Parcels come ordered by the time of their first row. So a parcel is a
promise that no earlier row follows, and shards merge what they receive while it is still coming, in as much
memory as parcels overlap in time.

A movement may go by files all the same: then the rows lie in a file of the sender's, and the parcel has the lines
of the manifest, of the attempt that Spark has accepted. Those come before all rows.

What is meant for a later wave, or for the driver, is handed on as it is. An error that would come again on every
attempt travels to the driver as a parcel; any other is raised, with itself in its text, where the driver finds it.
"""

from __future__ import annotations

import io
import pickle
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from squill.engine.arrow_form import arrow_table
from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.errors import InternalError, SquillError
from squill.exchange.codec import decode, encode
from squill.exchange.flow import Flow, Halted
from squill.exchange.mailbox import Mailbox, MailboxReader
from squill.exchange.merge import merge_runs
from squill.exchange.scatter import Outbox
from squill.exchange.segments import Run, SegmentWriter, read_run
from squill.plan.arrow_frames import from_arrow
from squill.plan.fragments import Channel, Fragment, sources_of
from squill.plan.layout import Layout
from squill.plan.node import Node
from squill.plan.nodes import FrameSource, Source
from squill.plan.nodes.movement import ShardInput
from squill.plan.schema import Schema
from squill.plan.serialise import loads
from squill.plan.stages import Stage
from squill.runtime.answer import Answer, Receipt
from squill.runtime.hosts import hosts_of_splits
from squill.runtime.machine import Machine, Ports
from squill.runtime.report import forget_peak_memory
from squill.runtime.shard import BatchInbox, Inbox, read_split, rows_per_batch
from squill.runtime.spark.carried import carrying
from squill.runtime.spark.jobs import filler
from squill.runtime.spark.parcel import (
    ANSWER,
    BATCH,
    DRIVER,
    ERROR,
    FRAME,
    MARK,
    PARCEL,
    RECEIPT,
    RUNS,
    WORK,
    parcel,
    parcel_contents,
)
from squill.runtime.spark.tables import spark_frame
from squill.runtime.spark.task import MAY_PASS, file_name
from squill.runtime.threads import Checkpoint
from squill.time import INFINITY

__all__ = [
    "ShuffleJob",
    "frame_bytes",
    "frame_parcel",
    "frame_parcels",
    "rows_of_answer",
    "run_shuffle_task",
    "table_parcels",
]

PARCELS_AHEAD = 16
ROWS_FOR_SPARK = 10_000


@dataclass(frozen=True, kw_only=True)
class ShuffleJob:
    """All that the tasks of a plan need to know.

    ``waves``    the stages that run side by side, wave after wave.
    ``senders``  by channel how many shards send, ``schemas`` what.
    ``splits``   by (fragment, leaf) what each shard reads; the rows of frames come as parcels.
    ``answer``   what becomes of the rows of the last fragment.
    ``filling``  how many rows of filling each task of the last wave adds, so that the driver has the others at once.
    ``files``    the channels whose rows go by files, in `folder`.
    ``is_table`` whether people ask Spark for the rows: they read an error's text, and nobody takes it out of there.
    """

    waves: tuple[tuple[Stage, ...], ...]
    senders: Mapping[int, int]
    schemas: Mapping[int, Schema]
    splits: Mapping[tuple[int, int], Sequence[Source]]
    compression: str | None
    answer: Answer
    filling: int = 0
    files: frozenset[int] = frozenset()
    folder: str = ""
    is_table: bool = False

    def tasks(self, wave: int) -> int:
        return sum(stage.layout.machines for stage in self.waves[wave])

    def hosts(self, wave: int) -> list[list[str]]:
        """Return where each task of a wave would best run, if that is known."""
        return [
            hosts_of_splits(
                parts[shard]
                for fragment in stage.fragments
                for (number, _), parts in self.splits.items()
                if number == fragment.number
                for shard in stage.layout.shards_of(machine)
            )
            for stage in self.waves[wave]
            for machine in range(stage.layout.machines)
        ]

    def marks(self, wave: int, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each of these tasks of a wave."""
        for task in tasks:
            yield parcel(wave=wave, target=task, kind=MARK, place=0, data=b"")

    def stage(self, wave: int, task: int) -> tuple[Stage, int]:
        """Return the stage of a task of a wave, and its machine there."""
        for stage in self.waves[wave]:
            if task < stage.layout.machines:
                return stage, task
            task -= stage.layout.machines
        raise InternalError("there are more tasks than machines")

    def task_of(self, wave: int, stage: Stage, shard: int) -> int:
        """Return the task that runs a shard of a stage."""
        before = 0
        for other in self.waves[wave]:
            if other.number == stage.number:
                return before + stage.layout.machine_of(shard)
            before += other.layout.machines
        raise InternalError(f"stage {stage.number} is not in wave {wave}")

    def readers(self, channel: int, sender: Stage) -> list[tuple[int, Stage]]:
        """Return the stages, with their waves, that a channel leads to, other than the sender's own."""
        return [
            (number, stage)
            for number, stages in enumerate(self.waves)
            for stage in stages
            if stage.number != sender.number and channel in stage.inputs
        ]


def frame_parcels(
    job: ShuffleJob, frame: pl.DataFrame, fragment: int, leaf: int, shard: int
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's rows of a frame, for the task of the first wave it runs in or of a later one."""

    def encoded(first: int, end: int) -> bytes:
        return frame_bytes(frame[first:end])

    contents = (data for _, data in parcel_contents(frame.height, encoded)) if frame.height else [frame_bytes(frame)]
    for number, data in enumerate(contents):
        yield frame_parcel(job, data, fragment, leaf, shard, number)


def frame_bytes(frame: pl.DataFrame) -> bytes:
    """Return rows as parcels of frames carry them."""
    content = io.BytesIO()
    frame.write_ipc(content)
    return content.getvalue()


def frame_parcel(job: ShuffleJob, data: bytes, fragment: int, leaf: int, shard: int, number: int) -> pa.RecordBatch:
    """Return piece number so and so of a shard's rows."""
    ((wave, stage),) = [
        (wave, stage)
        for wave, stages in enumerate(job.waves)
        for stage in stages
        if any(item.number == fragment for item in stage.fragments)
    ]
    return parcel(
        wave=wave,
        target=job.task_of(wave, stage, shard),
        kind=FRAME,
        place=fragment,
        leaf=leaf,
        sender=shard,
        number=number,
        data=data,
    )


def table_parcels(
    job_bytes: bytes, fragment: int, leaf: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task that has rows of a DataFrame: a partition's rows go to one shard, as a frame does."""
    job: ShuffleJob = loads(job_bytes)
    splits = job.splits[fragment, leaf]
    shard = TaskContext.get().partitionId() % len(splits)  # type: ignore[union-attr]
    split = splits[shard]
    assert isinstance(split, FrameSource)
    schema = split.frame.to_arrow().schema
    for batch in batches:
        frame = from_arrow(pa.Table.from_batches([batch]).cast(schema))
        yield from frame_parcels(job, frame, fragment, leaf, shard)


def rows_of_answer(node_bytes: bytes, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of a task that makes rows for Spark of the answer's parcels."""
    node: Node = loads(node_bytes)
    for record in batches:
        for row in record.select(["kind", "data"]).to_pylist():
            if row["kind"] == ERROR:
                raise pickle.loads(row["data"])  # noqa: S301  (written by our own task)
            if row["kind"] != ANSWER:
                continue
            frame = spark_frame(result_frame(decode(pa.py_buffer(row["data"]), node.schema), node))
            yield from arrow_table(frame).cast(schema).to_batches(max_chunksize=ROWS_FOR_SPARK)


def run_shuffle_task(
    job_bytes: bytes, wave: int, rows_read: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of the task: parcels in, parcels out. `rows_read` is Spark's count of them for who looks on.

    Which task it is its rows say, of which there is one at least: Spark's number of the task is another one where
    somebody has put the answer together with another DataFrame, or its parts together.
    """
    forget_peak_memory()
    job: ShuffleJob = loads(job_bytes)
    context = TaskContext.get()
    assert context is not None
    # A session may have large binary columns, and what is handed on goes with what is made here.
    batches = (batch if batch.schema.equals(PARCEL) else batch.cast(PARCEL) for batch in batches)
    first = next(batches)
    number = first.column("target")[0].as_py() % job.tasks(wave)
    if wave + 1 < len(job.waves):
        yield from job.marks(wave + 1, range(number, job.tasks(wave + 1), job.tasks(wave)))
    stage, machine = job.stage(wave, number)
    task = _Task(job, wave, stage, machine, context.taskAttemptId())
    yield from task.run(chain([first], batches))
    if rows_read is not None:
        rows_read.add(sum(work.rows_read for work in task.machine.works))


@dataclass
class _Arrived:
    """What has come for the shards of this machine that is not rows of a channel; it comes before those.

    ``frames``  by fragment, leaf and shard.
    ``runs``    by channel and shard where its rows lie.
    """

    frames: dict[tuple[int, int, int], list[pl.DataFrame]] = field(default_factory=dict)
    runs: dict[tuple[int, int], list[Run]] = field(default_factory=dict)
    is_all: bool = False


class _Task:
    def __init__(self, job: ShuffleJob, wave: int, stage: Stage, machine: int, attempt: int) -> None:
        self.job = job
        self.wave = wave
        self.stage = stage
        self.attempt = attempt
        self.shards = stage.layout.shards_of(machine)
        self.machine = Machine(
            stage.fragments,
            lambda _: self.shards,
            inner=stage.inner,
            outer=stage.outputs,
            answer=job.answer,
            attempt=attempt,
            cores=len(self.shards),
            feeders=1,
        )
        self.arrived = _Arrived()
        self.mailboxes = self._mailboxes(self.machine.flow)
        self._out: queue.Queue[pa.RecordBatch | None] = queue.Queue(PARCELS_AHEAD)
        self._is_over = threading.Event()

    def _mailboxes(self, flow: Flow) -> dict[tuple[int, int, int], Mailbox]:
        """Return by channel, shard and reading fragment what comes from elsewhere."""
        return {
            (channel, shard, fragment.number): Mailbox(flow, range(self.job.senders[channel]))
            for fragment in self.stage.fragments
            for channel in fragment.inputs
            if channel is not None and channel not in self.stage.inner and channel not in self.job.files
            for shard in self.shards
        }

    def put(self, row: pa.RecordBatch | None) -> None:
        """Give a parcel to Spark, or None for the end; waits until there is room."""
        while not self._is_over.is_set():
            try:
                self._out.put(row, timeout=1)
            except queue.Full:
                continue
            return
        raise Halted

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self.machine.run(self._open_ports, [lambda checkpoint: self._feed(batches, checkpoint)])
                for work in self.machine.works:
                    self.put(parcel(wave=DRIVER, target=0, kind=WORK, place=0, data=pickle.dumps(work)))
            except BaseException as error:  # noqa: BLE001  (raised by the task itself, below)
                failures.append(error)
            finally:
                with suppress(Halted):
                    self.put(None)

        worker = threading.Thread(target=work, name="machine", daemon=True)
        worker.start()
        try:
            while (row := self._out.get()) is not None:
                yield row
        finally:
            # Also when Spark wants no more of it: nobody is left waiting.
            self._is_over.set()
            self.machine.flow.halt()
            worker.join()
        for failure in failures:
            yield self._failed(failure)
        if self.job.filling and self.wave == len(self.job.waves) - 1:
            yield filler(PARCEL, "data", self.job.filling)

    def _failed(self, failure: BaseException) -> pa.RecordBatch:
        if isinstance(failure, SquillError) and not isinstance(failure, MAY_PASS):
            task = self.job.task_of(self.wave, self.stage, self.shards[0])
            place = {"wave": DRIVER, "target": 0, "place": self.wave, "sender": task}
            return parcel(kind=ERROR, data=pickle.dumps(failure), **place)
        if isinstance(failure, Exception) and not self.job.is_table:
            raise carrying(failure)
        raise failure.with_traceback(None)

    # -- what comes in ------------------------------------------------------------------------------------

    def _feed(self, batches: Iterator[pa.RecordBatch], checkpoint: Checkpoint) -> None:
        for record in batches:
            rows = record.to_pylist()
            for number, row in enumerate(rows):
                checkpoint()
                if row["wave"] != self.wave:
                    self.put(record.slice(number, 1))
                elif row["kind"] == MARK:
                    continue
                elif row["kind"] == FRAME:
                    place = (row["place"], row["leaf"], row["sender"])
                    self.arrived.frames.setdefault(place, []).append(pl.read_ipc(io.BytesIO(row["data"])))
                elif row["kind"] == RUNS:
                    for run in pickle.loads(row["data"]):  # noqa: S301  (written by our own task)
                        self.arrived.runs.setdefault((run.channel, run.receiver), []).append(run)
                else:
                    self._deliver(row)
        self.machine.flow.change(self._all_arrived)

    def _all_arrived(self) -> None:
        self._tell(INFINITY)

    def _tell(self, t: int) -> None:
        """Let time come to t, as rows do, so that nothing but rows follows; the caller has the flow's lock."""
        self.arrived.is_all = True
        for mailbox in self.mailboxes.values():
            for sender in mailbox.queues:
                mailbox.tell(sender, t)

    def _deliver(self, row: dict[str, Any]) -> None:
        # Parcels come in the order of their first rows, so time has come to this one's.
        self.machine.flow.change(lambda: self._tell(row["first"]))
        batch = decode(pa.py_buffer(row["data"]), self.job.schemas[row["place"]])
        receivers = set(np.frombuffer(row["receivers"], np.int32).tolist())
        for (channel, shard, _), mailbox in self.mailboxes.items():
            if channel == row["place"] and shard in receivers:
                mailbox.post(row["sender"], batch)

    # -- what goes out ------------------------------------------------------------------------------------

    @contextmanager
    def _open_ports(self, fragment: Fragment, shard: int) -> Iterator[Ports]:
        if not any(channel.number in self.job.files for channel in fragment.outputs):
            yield _ShufflePorts(self, fragment, shard)
            return
        path = Path(self.job.folder) / file_name(self.stage.number, fragment.number, shard, self.attempt)
        identity = {"fragment": fragment.number, "shard": shard, "attempt": self.attempt}
        with SegmentWriter(path, **identity, compression=self.job.compression) as writer:
            yield _ShufflePorts(self, fragment, shard, writer)


class _ShufflePorts:
    """A shard's mailboxes and parcels, and the file that it writes, if there is one."""

    def __init__(self, task: _Task, fragment: Fragment, shard: int, writer: SegmentWriter | None = None) -> None:
        self._task = task
        self._fragment = fragment
        self._shard = shard
        self._writer = writer
        self._answers = _AnswerOutbox(task, shard)

    def inbox(self, leaf: int) -> Inbox:
        source = sources_of(self._fragment.root)[leaf]
        if isinstance(source, ShardInput) and source.channel in self._task.job.files:
            self._wait_for_all()
            runs = self._task.arrived.runs.get((source.channel, self._shard), [])
            ordered = sorted(runs, key=lambda run: run.shard)
            return BatchInbox(merge_runs([read_run(run, source.schema) for run in ordered]))
        if isinstance(source, ShardInput):
            return MailboxReader(self._task.mailboxes[source.channel, self._shard, self._fragment.number])
        split = self._task.job.splits[self._fragment.number, leaf][self._shard]
        if isinstance(split, FrameSource):
            self._wait_for_all()
            pieces = self._task.arrived.frames.pop((self._fragment.number, leaf, self._shard), [split.frame])
            split = replace(split, frame=pl.concat(pieces))
        return BatchInbox(read_split(split, rows_per_batch(self._fragment.root)))

    def _wait_for_all(self) -> None:
        """Wait for what comes before rows."""
        arrived = self._task.arrived
        self._task.machine.flow.wait_until(lambda: arrived.is_all)

    def outbox(self, channel: Channel) -> Outbox:
        if channel.number in self._task.job.files:
            assert self._writer is not None
            return self._writer.outbox(channel.number)
        return _ParcelOutbox(self._task, channel, self._shard)

    def answer_outbox(self) -> Outbox:
        return self._answers

    def result(self, receipt: Receipt | None) -> None:
        if self._writer is not None:
            self._send_runs(self._writer.runs())
        if receipt is not None:
            self._answers.end(receipt)

    def _send_runs(self, runs: Sequence[Run]) -> None:
        """Tell each task that is to read of the file what in it is for its shards."""
        job = self._task.job
        for channel in sorted({run.channel for run in runs}):
            by_receiver = {run.receiver: run for run in runs if run.channel == channel}
            for wave, stage in job.readers(channel, self._task.stage):
                for machine, shards in _by_machine(stage.layout, list(by_receiver)).items():
                    self._task.put(
                        parcel(
                            wave=wave,
                            target=job.task_of(wave, stage, machine * stage.layout.cores),
                            kind=RUNS,
                            place=channel,
                            sender=self._shard,
                            data=pickle.dumps([by_receiver[shard] for shard in shards]),
                        )
                    )


class _AnswerOutbox:
    """One shard's rows of the answer: small pieces of them become parcels for the driver, and then its receipt."""

    def __init__(self, task: _Task, shard: int) -> None:
        self._task = task
        self._place = {"wave": DRIVER, "target": 0, "place": 0, "sender": shard}
        self._number = 0

    def send(self, _: Sequence[int], batch: Batch) -> int:
        sent = 0
        for _first, data in _encoded_pieces(batch, self._task.job.compression):
            self._task.put(parcel(kind=ANSWER, number=self._number, data=data, **self._place))
            self._number += 1
            sent += len(data)
        return sent

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        """The driver has no use for rows before the receipt."""

    def end(self, receipt: Receipt) -> None:
        """Send the receipt, of which the rows have been sent."""
        self._task.put(parcel(kind=RECEIPT, data=pickle.dumps(receipt), **self._place))


class _ParcelOutbox:
    """One channel of one shard: batches become parcels, one for each task that has any of their receivers."""

    def __init__(self, task: _Task, channel: Channel, shard: int) -> None:
        self._task = task
        self._channel = channel.number
        self._shard = shard
        self._number = 0
        self._readers = task.job.readers(channel.number, task.stage)

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        sent = 0
        for first, data in _encoded_pieces(batch, self._task.job.compression):
            sent += self._send(receivers, int(batch.sync[first]), data)
            self._number += 1
        return sent

    def _send(self, receivers: Sequence[int], first: int, data: pa.Buffer) -> int:
        sent = 0
        for wave, stage in self._readers:
            for machine, shards in _by_machine(stage.layout, receivers).items():
                self._task.put(
                    parcel(
                        wave=wave,
                        target=self._task.job.task_of(wave, stage, machine * stage.layout.cores),
                        kind=BATCH,
                        place=self._channel,
                        receivers=np.array(shards, np.int32).tobytes(),
                        sender=self._shard,
                        number=self._number,
                        first=first,
                        data=data,
                    )
                )
                sent += int(data.size)
        return sent

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        """Nobody takes a parcel before all of them are there."""


def _encoded_pieces(batch: Batch, compression: str | None) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield a batch as parcels carry it, and of each piece the first row."""
    return parcel_contents(len(batch), lambda first, end: encode(batch.slice(first, end), compression))


def _by_machine(layout: Layout, shards: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for shard in shards:
        found.setdefault(layout.machine_of(shard), []).append(shard)
    return found
