"""What runs in a Spark task: one machine's shards of one fragment.

A task is given its machine's number as its only row, does the shards of that machine, writes one file per shard
and returns the manifest lines of what it wrote as rows. Spark hands the driver the rows of exactly one attempt
per task, so the manifest names accepted attempts only.

An error that would come again on every attempt is returned as a row, so that Spark does not try three more
times; any other is left in the run's folder for the driver to read, and raised.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyspark import TaskContext

from squill.errors import ClusterError, InternalError, ShardError, SquillError, UserFunctionError
from squill.exchange.merge import merge_runs
from squill.exchange.segments import MANIFEST, Run, SegmentWriter, read_run, runs_for
from squill.plan.fragments import Fragment
from squill.plan.nodes import FrameSource, Source
from squill.plan.serialise import loads
from squill.runtime.failure import located
from squill.runtime.shard import ShardTask
from squill.runtime.splits import source_of
from squill.runtime.threads import Stopped, run_on_threads

__all__ = ["OUTPUT", "OUTPUT_DDL", "FragmentJob", "error_files", "file_name", "run_machine"]

OUTPUT = pa.schema([*MANIFEST, ("error", pa.binary())])
OUTPUT_DDL = (
    "fragment int, shard int, attempt bigint, receiver int, path string, rows bigint, "
    "min_sync bigint, max_sync bigint, segments binary, error binary"
)

MAY_PASS = (UserFunctionError, InternalError, ClusterError, OSError, MemoryError)
"""Errors that another attempt may not meet."""


@dataclass(frozen=True, kw_only=True)
class FragmentJob:
    """All that the tasks of one fragment need to know.

    ``splits``  per shard the source to read, and the file that holds its frame, if it is one.
    ``inbox``   the manifest of the sender; None when shards read a source.
    """

    fragment: Fragment
    cores: int
    folder: str
    compression: str | None
    splits: tuple[tuple[Source, str | None], ...]
    inbox: pa.Table | None

    @property
    def machines(self) -> int:
        return -(-self.fragment.shards // self.cores)

    def shards_of(self, machine: int) -> range:
        """Return the shards of a machine: neighbours, `cores` of them."""
        return range(machine * self.cores, min((machine + 1) * self.cores, self.fragment.shards))

    def run_shard(self, shard: int, attempt: int, checkpoint: Callable[[], None]) -> list[Run]:
        """Do one shard's work; return the manifest lines of what it wrote."""
        path = Path(self.folder) / file_name(self.fragment.number, shard, attempt)
        with SegmentWriter(
            path, fragment=self.fragment.number, shard=shard, attempt=attempt, compression=self.compression
        ) as outbox:
            self._task(shard).run(outbox, checkpoint)
        return outbox.runs()

    def _task(self, shard: int) -> ShardTask:
        if self.splits:
            split, path = self.splits[shard]
            if path is not None:
                assert isinstance(split, FrameSource)
                split = replace(split, frame=pl.read_ipc(path))
            return ShardTask(fragment=self.fragment, shard=shard, split=split)
        schema = source_of(self.fragment.root).schema
        received = merge_runs([read_run(run, schema) for run in runs_for(shard, self.inbox)])
        return ShardTask(fragment=self.fragment, shard=shard, received=received)


def file_name(fragment: int, shard: int | str, attempt: int | str) -> str:
    """Return the name of one attempt's file; no two attempts share one."""
    return f"f{fragment}-s{shard}-a{attempt}.arrow"


def error_files(folder: Path, fragment: int) -> list[Path]:
    """Return the errors that attempts of a fragment have left, the latest first."""
    found = folder.glob(f"f{fragment}-s*-a*.error")
    return sorted(found, key=lambda path: int(path.stem.rpartition("-a")[2]), reverse=True)


def run_machine(job_bytes: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task: a machine's number in, manifest lines out."""
    job: FragmentJob = loads(job_bytes)
    attempt = TaskContext.get().taskAttemptId()  # type: ignore[union-attr]
    for batch in batches:
        for machine in batch.column(0).to_pylist():
            yield _output(job, machine, attempt)


def _output(job: FragmentJob, machine: int, attempt: int) -> pa.RecordBatch:
    work = [_shard_work(job, shard, attempt) for shard in job.shards_of(machine)]
    try:
        lines = [vars(run) for runs in run_on_threads(work, job.cores) for run in runs]
    except SquillError as error:
        if isinstance(error, MAY_PASS):
            raise
        lines = [{"fragment": job.fragment.number, "attempt": attempt, "error": pickle.dumps(error)}]
    return pa.RecordBatch.from_pylist(lines, schema=OUTPUT)


def _shard_work(job: FragmentJob, shard: int, attempt: int) -> Callable[[Callable[[], None]], list[Run]]:
    def work(checkpoint: Callable[[], None]) -> list[Run]:
        try:
            return job.run_shard(shard, attempt, checkpoint)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised with its place)
            failure = located(error, job.fragment, shard)
            if isinstance(failure, MAY_PASS):
                _leave_error(Path(job.folder), job.fragment.number, shard, attempt, failure)
            raise failure from failure.__cause__

    return work


def _leave_error(folder: Path, fragment: int, shard: int, attempt: int, failure: SquillError) -> None:
    """Write the error for the driver; the folder is gone when the run has ended meanwhile."""
    try:
        content = pickle.dumps(failure)
    except (pickle.PicklingError, TypeError, AttributeError):
        content = pickle.dumps(ShardError(failure.what, failure.hint))
    try:
        (folder / f"f{fragment}-s{shard}-a{attempt}.error").write_bytes(content)
    except FileNotFoundError:
        return
