"""What runs in a Spark task: one machine's shards of one stage.

A task is given its number as its only row, runs the shards of that machine, writes one file per shard
and fragment and returns the manifest lines of what it wrote as rows. Spark hands the driver the rows of exactly
one attempt per task, so the manifest names accepted attempts only.

An error that would come again on every attempt is returned as a row, so that Spark does not try three more
times; any other is left in the run's folder for the driver to read, and raised, with itself in its text.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from squill.errors import ClusterError, InternalError, ShardError, SquillError, UserFunctionError
from squill.exchange.flow import Halted
from squill.exchange.merge import merge_runs
from squill.exchange.scatter import Outbox
from squill.exchange.segments import MANIFEST, Run, SegmentWriter, read_run, runs_for
from squill.plan.build.files import read_stored
from squill.plan.fragments import Channel, Fragment, sources_of
from squill.plan.nodes import FrameSource
from squill.plan.nodes.movement import ShardInput
from squill.plan.serialise import loads
from squill.plan.stages import Stage
from squill.runtime.answer import Answer, Receipt
from squill.runtime.failure import located
from squill.runtime.hosts import hosts_of_splits
from squill.runtime.machine import Machine, Ports
from squill.runtime.report import Work, forget_peak_memory
from squill.runtime.run_folder import StoredSplit
from squill.runtime.shard import BatchInbox, Inbox, read_split, rows_per_batch
from squill.runtime.spark.carried import carrying
from squill.runtime.spark.held_files import HeldFiles
from squill.runtime.spark.jobs import filler

__all__ = [
    "ANSWER", "OUTPUT", "OUTPUT_DDL", "StageJob", "WaveJob", "error_files",
    "file_name", "run_task",
]  # fmt: skip

ANSWER = 0
"""The channel of the answer; its only receiver is the driver."""

OUTPUT = pa.schema([*MANIFEST, ("receipt", pa.binary()), ("work", pa.binary()), ("error", pa.binary())])
OUTPUT_DDL = (
    "fragment int, shard int, attempt bigint, channel int, receiver int, path string, rows bigint, "
    "min_sync bigint, max_sync bigint, segments binary, receipt binary, work binary, error binary"
)

MAY_PASS = (UserFunctionError, InternalError, ClusterError, OSError, MemoryError)
"""Errors that another attempt may not meet."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a shard has written, and its receipt when its rows are the answer, which are in the file."""

    runs: Sequence[Run]
    receipt: Receipt | None

    def lines(self, work: Work) -> list[dict[str, Any]]:
        """Return what the task tells the driver: lines of the manifest, and one more for the receipt and the work."""
        receipt = None if self.receipt is None else pickle.dumps(self.receipt)
        return [*(vars(run) for run in self.runs), {"receipt": receipt, "work": pickle.dumps(work)}]


@dataclass(frozen=True, kw_only=True)
class StageJob:
    """All that the tasks of one stage need to know.

    ``splits``   by (fragment, leaf) what each shard reads.
    ``inboxes``  by channel the manifest of what its senders wrote.
    ``answer``   what becomes of the rows of the last fragment.
    """

    stage: Stage
    folder: str
    compression: str | None
    splits: Mapping[tuple[int, int], Sequence[StoredSplit]]
    inboxes: Mapping[int, pa.Table]
    answer: Answer

    def run(self, machine: int, attempt: int) -> list[dict[str, Any]]:
        """Run the shards of a machine; return what they tell the driver."""
        layout = self.stage.layout
        held = HeldFiles()

        @contextmanager
        def open_ports(fragment: Fragment, shard: int) -> Iterator[Ports]:
            path = Path(self.folder) / file_name(self.stage.number, fragment.number, shard, attempt)
            identity = {"fragment": fragment.number, "shard": shard, "attempt": attempt}
            try:
                with SegmentWriter(path, **identity, compression=self.compression) as writer:
                    yield TaskPorts(self, fragment, shard, writer, held)
            except Halted:
                raise
            except Exception as error:
                # Left here, by the shard that failed; the first to be raised need not be the first that Spark reports.
                self._leave_error(fragment, shard, attempt, error)
                raise

        shards = layout.shards_of(machine)
        work = Machine(
            self.stage.fragments,
            lambda _: shards,
            inner=self.stage.inner,
            outer=self.stage.outputs,
            answer=self.answer,
            attempt=attempt,
            cores=len(shards),
        )
        try:
            reports: list[Report] = work.run(open_ports)
        finally:
            if held.are_open:
                held.close_later()
        return [line for report, done in zip(reports, work.works, strict=True) for line in report.lines(done)]

    def hosts(self, machine: int) -> list[str]:
        """Return the hosts that have most of what a machine reads."""
        shards = self.stage.layout.shards_of(machine)
        return hosts_of_splits(parts[shard][0] for parts in self.splits.values() for shard in shards)

    def _leave_error(self, fragment: Fragment, shard: int, attempt: int, error: Exception) -> None:
        """Write an error that may pass for the driver."""
        if isinstance(error, SquillError) and not isinstance(error, MAY_PASS):
            return
        # The traceback tells which operator was running.
        copy = _copied(error).with_traceback(error.__traceback__)
        content = pickle.dumps(located(copy, fragment, shard))
        name = file_name(self.stage.number, fragment.number, shard, attempt)
        place = (Path(self.folder) / name).with_suffix(".error")
        try:
            place.write_bytes(content)
        except OSError:
            # The folder is gone, or its disk is full; then the error that is raised carries it.
            place.unlink(missing_ok=True)


def _copied(error: Exception) -> Exception:
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301  (it was pickled here)
    except Exception:  # noqa: BLE001  (an error of the user's that cannot be pickled)
        return ShardError(f"{type(error).__name__}: {error}")
    return copy


@dataclass(frozen=True, kw_only=True)
class WaveJob:
    """Stages that run side by side, as one Spark job: a task for each machine of each.

    ``filling``  how many rows of filling each task adds, so that the driver has its lines at once (see `filler`).
    """

    jobs: tuple[StageJob, ...]
    filling: int = 0

    @property
    def tasks(self) -> int:
        return sum(job.stage.layout.machines for job in self.jobs)

    def hosts(self) -> list[list[str]]:
        """Return where each task would best run, if that is known."""
        return [job.hosts(machine) for job in self.jobs for machine in range(job.stage.layout.machines)]

    def task(self, number: int) -> tuple[StageJob, int]:
        """Return the stage of a task, and its machine there."""
        for job in self.jobs:
            if number < job.stage.layout.machines:
                return job, number
            number -= job.stage.layout.machines
        raise InternalError("there are more tasks than machines")


class TaskPorts:
    """A shard's files: what it reads, and the one it writes."""

    def __init__(self, job: StageJob, fragment: Fragment, shard: int, writer: SegmentWriter, held: HeldFiles) -> None:
        self._held = held
        self._job = job
        self._fragment = fragment
        self._shard = shard
        self._writer = writer

    def inbox(self, leaf: int) -> Inbox:
        source = sources_of(self._fragment.root)[leaf]
        if isinstance(source, ShardInput):
            runs = runs_for(source.channel, self._shard, self._job.inboxes[source.channel])
            for run in runs:
                self._held.hold(run.path)
            return BatchInbox(merge_runs([read_run(run, source.schema) for run in runs]))
        split, path = self._job.splits[self._fragment.number, leaf][self._shard]
        if path is not None:
            assert isinstance(split, FrameSource)
            split = replace(split, frame=read_stored(Path(path)))
        return BatchInbox(read_split(split, rows_per_batch(self._fragment.root)))

    def outbox(self, channel: Channel) -> Outbox:
        return self._writer.outbox(channel.number)

    def answer_outbox(self) -> Outbox:
        return self._writer.outbox(ANSWER)

    def result(self, receipt: Receipt | None) -> Report:
        return Report(runs=self._writer.runs(), receipt=receipt)


def file_name(stage: int | str, fragment: int | str, shard: int | str, attempt: int | str) -> str:
    """Return the name of one attempt's file; no two attempts share one."""
    return f"t{stage}-f{fragment}-s{shard}-a{attempt}.arrow"


def error_files(folder: Path, wave: WaveJob) -> list[Path]:
    """Return the errors that attempts of a wave's stages have left, the latest first."""
    found = [path for job in wave.jobs for path in folder.glob(f"t{job.stage.number}-f*-s*-a*.error")]
    return sorted(found, key=lambda path: int(path.stem.rpartition("-a")[2]), reverse=True)


def run_task(job_bytes: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task: its number in the wave in, manifest lines out."""
    forget_peak_memory()
    wave: WaveJob = loads(job_bytes)
    attempt = TaskContext.get().taskAttemptId()  # type: ignore[union-attr]
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _output(*wave.task(number), attempt)
    if wave.filling:
        yield filler(OUTPUT, "error", wave.filling)


def _output(job: StageJob, machine: int, attempt: int) -> pa.RecordBatch:
    try:
        lines = job.run(machine, attempt)
    except SquillError as error:
        if isinstance(error, MAY_PASS):
            raise carrying(error) from error
        lines = [{"attempt": attempt, "error": pickle.dumps(error)}]
    return pa.RecordBatch.from_pylist(lines, schema=OUTPUT)
