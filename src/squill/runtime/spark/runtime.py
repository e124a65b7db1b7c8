"""Fragments as Spark jobs, one after the other; rows move as Arrow files.

Each fragment is one job without a shuffle: `machines` tasks that read their splits, or map the files of the
fragment before. The rows that tasks return to the driver are the manifest, and the answer comes in files too.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from squill.engine.batch import Batch
from squill.errors import ClusterError, ShardError
from squill.exchange.merge import merge_runs
from squill.exchange.segments import read_run, runs_for
from squill.plan.fragments import Fragment
from squill.plan.nodes import FrameSource, Source
from squill.plan.rebuild import substitute
from squill.plan.serialise import dumps
from squill.runtime.progress import OnProgress, Progress
from squill.runtime.shard import DRIVER
from squill.runtime.spark.folder import RunFolder
from squill.runtime.spark.task import OUTPUT_DDL, FragmentJob, error_files, file_name, run_machine
from squill.runtime.splits import source_of, splits_of

__all__ = ["SparkRuntime"]

POLL_SECONDS = 0.25


class SparkRuntime:
    """`machines` Spark tasks of `cores` shards each, whose files stand in `folder` while a plan runs.

    ``session``  the Spark session; closing the runtime stops it when it `owns_session`.
    ``task``     what a task runs: a function of the job's bytes and the task's rows.
    """

    def __init__(
        self,
        session: Any,
        *,
        machines: int,
        cores: int,
        folder: Path,
        compression: str | None = None,
        owns_session: bool = False,
    ) -> None:
        self.session = session
        self.task: Callable[[bytes, Iterator[Any]], Iterator[Any]] = run_machine
        self._machines = machines
        self._cores = cores
        self.folder = folder
        self._compression = compression
        self._owns_session = owns_session
        self._is_closed = False

    @property
    def shards(self) -> int:
        return self._machines * self._cores

    def describe(self) -> str:
        return f"spark, {self._machines} machines of {self._cores} cores"

    def run(self, fragments: Sequence[Fragment], on_progress: OnProgress | None = None) -> list[Batch]:
        if self._is_closed:
            raise ClusterError("this cluster is closed", "make another one with sq.spark(…).")
        with RunFolder(self.folder) as folder:
            sent: dict[int, pa.Table] = {}
            for fragment in fragments:
                received = None if fragment.sender is None else sent.pop(fragment.sender)
                with _reporting(folder, fragment, len(fragments), on_progress):
                    sent[fragment.number] = self._run_fragment(self._job(fragment, received, folder))
                if received is not None:
                    _remove_files(received)
            (last,) = sent.values()
            schema = fragments[-1].root.schema
            # The files are mapped now, so they may go with the folder.
            return list(merge_runs([read_run(run, schema) for run in runs_for(DRIVER, last)]))

    def _job(self, fragment: Fragment, received: pa.Table | None, folder: Path) -> FragmentJob:
        splits: list[tuple[Source, str | None]] = []
        if fragment.sender is None:
            source = source_of(fragment.root)
            parts = splits_of(source, fragment.shards)
            splits = [_stored(part, folder / f"split-{shard}.ipc") for shard, part in enumerate(parts)]
            # The plan goes to every task; a shard's rows only to its own.
            bare = _without_rows(source)
            root = substitute(fragment.root, lambda node: bare if node is source else None)
            fragment = replace(fragment, root=root)
        return FragmentJob(
            fragment=fragment,
            cores=self._cores,
            folder=str(folder),
            compression=self._compression,
            splits=tuple(splits),
            inbox=received,
        )

    def _run_fragment(self, job: FragmentJob) -> pa.Table:
        """Run one job and return the manifest of what its tasks wrote."""
        machines = self.session.range(0, job.machines, 1, job.machines)
        try:
            manifest = machines.mapInArrow(partial(self.task, dumps(job)), OUTPUT_DDL).toArrow()
        except (PySparkException, Py4JError) as error:
            raise _reported(job, error) from error
        for failure in manifest.column("error").drop_null().to_pylist():
            raise pickle.loads(failure)  # noqa: S301  (written by our own task)
        return manifest.drop_columns("error")

    def close(self) -> None:
        if self._owns_session and not self._is_closed:
            self.session.stop()
        self._is_closed = True


def _without_rows(source: Source) -> Source:
    return replace(source, frame=source.frame.clear()) if isinstance(source, FrameSource) else source


def _stored(split: Source, path: Path) -> tuple[Source, str | None]:
    """Return the split as tasks get it; rows in memory become a file."""
    if not isinstance(split, FrameSource):
        return split, None
    split.frame.write_ipc(path)
    return _without_rows(split), str(path)


def _remove_files(manifest: pa.Table) -> None:
    for path in manifest.column("path").unique().to_pylist():
        Path(path).unlink(missing_ok=True)


def _reported(job: FragmentJob, error: Exception) -> Exception:
    """Return the error that the last attempt has left, or what Spark says when the worker died without a word."""
    for path in error_files(Path(job.folder), job.fragment.number):
        failure = pickle.loads(path.read_bytes())  # noqa: S301  (written by our own task)
        assert isinstance(failure, Exception)
        return failure
    return ShardError(
        f"{job.fragment.title}: a Spark task failed: {_spark_reason(error)}",
        "a worker that exits without an error was killed, often for want of memory; Spark's own error is the cause.",
    )


def _spark_reason(error: Exception) -> str:
    """Return the line of Spark's error that says why; the first ones say which Java method was called."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "Job aborted" in line or "Job cancelled" in line or "SparkException: " in line]
    return (reasons or lines or [type(error).__name__])[0]


@contextmanager
def _reporting(folder: Path, fragment: Fragment, fragments: int, on_progress: OnProgress | None) -> Iterator[None]:
    """Report the finished shards while in context, as told by their files: works on every kind of session."""
    if on_progress is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            names = folder.glob(file_name(fragment.number, "*", "*"))
            shards = {path.name.split("-")[1] for path in names}
            on_progress(
                Progress(fragment=fragment.number, fragments=fragments, done=len(shards), shards=fragment.shards)
            )

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
