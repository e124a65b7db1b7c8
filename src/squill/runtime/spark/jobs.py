"""Spark jobs that end with the run they belong to, what their tasks return, and what is said when one fails."""

from __future__ import annotations

import random
import re
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import IO, Any, Generic, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.util import _load_from_socket

from squill.errors import ShardError
from squill.exchange.flow import Halted
from squill.plan.fragments import Fragment
from squill.runtime.interrupts import came_of_an_interrupt
from squill.runtime.spark.kinds import has_lost_java, is_connect, is_stopped, java_is_gone
from squill.runtime.spark.near import task_rows
from squill.runtime.spark.plain_job import Task, collected

__all__ = [
    "CANNOT_GO_BACK", "MISSING", "Jobs", "as_often_as_rows_are_lost", "failed_without_a_word", "filler", "filler_rows",
    "jobs_of_one_run",
]  # fmt: skip

LOOK_SECONDS = 0.1

RAISED = re.compile(r"^[ \t]*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
"""What Python code in a task of Spark's has raised, such as a function of the user's that a DataFrame is made with."""
SAID = re.compile(r"\[[A-Z_.]+\] ")
"""How Spark begins what it says of rows, types and settings that it cannot take."""
WAS_STOPPED = "SparkContext was shut down"
CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED")
"""How Spark says that somebody has ended a job, or one of its stages; the latter is what Spark Connect says."""
OF_SPARK = re.compile(r"(?:Caused by: )?org\.apache\.spark\.SparkException: ")
CANNOT_GO_BACK = "shuffle map stage with indeterminate output"
"""Spark has lost rows that moved after some of the answer was returned, and cannot know that they would be the same."""
ATTEMPTS = 4
"""As often as Spark tries a task."""
MISSING = re.compile(r"No module named '([\w.]+)'")

FILLER_BYTES = 1 << 14
FILLED_TASKS = 64
FILLED_ROWS = 640_000
"""So many rows of filling all tasks add together at most: those of all filled tasks where batches are Spark's own."""


def filler(schema: pa.Schema, column: str, rows: int) -> pa.RecordBatch:
    """Return rows of nulls that push what a task has returned before them on to the driver.

    Spark writes what tasks return through a buffer of 8 KiB, which it does not flush before the last task, in batches
    of so many rows. So the last of these rows, in a batch of its own, has more bytes than the buffer in a binary
    `column`.
    """
    nulls = {entry.name: pa.nulls(rows, entry.type) for entry in schema}
    # Random, so that no compression makes little of it.
    data = random.Random(0).randbytes(FILLER_BYTES)
    nulls[column] = pa.concat_arrays([pa.nulls(rows - 1, pa.binary()), pa.array([data], pa.binary())])
    return pa.RecordBatch.from_pydict(nulls, schema=schema)


def filler_rows(session: Any, tasks: int) -> int:
    """Return how many rows of filling each task adds; none where batches of the session have no end, or are long.

    Filling is most of a megabyte for ten thousand rows, of which Spark takes a bounded sum, and Java holds a batch as a
    whole. Nor is there any where there are many tasks: what one returns is pushed on by the next.
    """
    rows = max(0, int(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")))
    return rows if tasks <= FILLED_TASKS and rows * tasks <= FILLED_ROWS else 0


T = TypeVar("T")


@dataclass(frozen=True)
class _Arrived(Generic[T]):
    """One item; none is the end, and perhaps a failure."""

    items: list[T]
    failure: BaseException | None = None


class Jobs:
    """The jobs of one run.

    ``tag``  what marks them.
    """

    def __init__(self, tag: str, session: Any, cancel: Callable[[str], object], stop: threading.Event | None) -> None:
        self.tag = tag
        self._session = session
        self._cancel = cancel
        self._stop = stop
        self._readers: list[threading.Thread] = []

    def run_tasks(
        self, task: Task, ddl: str, hosts: Sequence[Sequence[str]], *, one_by_one: bool
    ) -> Iterator[pa.RecordBatch]:
        """Run a task for each list of hosts, on one of them if there are any; yield the batches that tasks return.

        They are of the schema `ddl`. They come as tasks finish if they are wanted `one_by_one`, else when all have.
        """
        if one_by_one or is_connect(self._session) or any(hosts):
            yield from self.read(task_rows(self._session, hosts).mapInArrow(task, ddl), iter)
            return
        with_tag = partial(InheritableThread, name="spark-tasks", daemon=True)
        yield from self._on_thread(with_tag, lambda: collected(self._session, task, len(hosts)))

    def run_at_once(self, task: Task, tasks: int) -> None:
        """Run so many tasks side by side to their end; there must be slots for them."""
        with_tag = partial(InheritableThread, name="spark-tasks", daemon=True)
        for _ in self._on_thread(with_tag, lambda: collected(self._session, task, tasks, at_once=True)):
            pass

    def read(self, table: Any, reader: Callable[[Iterator[pa.RecordBatch]], Iterator[T]]) -> Iterator[T]:
        """Run the job of a DataFrame and yield what `reader` makes of its rows.

        It is given them as tasks finish, those of one task in order, and runs on a thread of its own, that takes
        them at once, whatever becomes of them here: Spark's scheduler writes them itself, and would wait. So what it
        yields must be little. When the run is to stop, `Halted` is raised. Where Spark is elsewhere (Connect), rows
        come when all tasks are done.
        """
        java = getattr(table, "_jdf", None)
        if java is None:  # Spark Connect
            yield from reader(iter(table.toArrow().to_batches()))
            return
        # The job is started by this thread, whose tag it gets.
        port, secret, server = java.collectAsArrowToPython()

        def items() -> Iterator[T]:
            try:
                with _load_from_socket((port, secret), _AsTheyCome()) as stream:
                    yield from reader(stream)
            finally:
                with unwrap_spark_exception():
                    server.getResult()  # raises what the job failed with

        yield from self._on_thread(partial(threading.Thread, name="spark-rows", daemon=True), items)

    def _on_thread(self, make: Callable[..., threading.Thread], items: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Yield what is made on a thread of its own, until the run is to stop."""
        arrived: SimpleQueue[_Arrived[T]] = SimpleQueue()

        def work() -> None:
            end: _Arrived[T] = _Arrived([])
            try:
                for item in items():
                    arrived.put(_Arrived([item]))
            except BaseException as error:  # noqa: BLE001  (raised below)
                end = _Arrived([], error)
            arrived.put(end)

        thread = make(target=work)
        thread.start()
        self._readers.append(thread)
        while (next_one := self._next(arrived)).items:
            yield from next_one.items
        if next_one.failure is not None:
            raise next_one.failure

    def _next(self, arrived: SimpleQueue[_Arrived[T]]) -> _Arrived[T]:
        while True:
            if self._stop is not None and self._stop.is_set():
                raise Halted
            try:
                return arrived.get(timeout=LOOK_SECONDS)
            except Empty:
                continue

    def stages(self) -> list[tuple[int, int]]:
        """Return of each stage that has begun how many of its tasks are done, and how many there are."""
        if is_connect(self._session):
            return []
        tracker = self._session.sparkContext._jsc.sc().statusTracker()
        known = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(self.tag)]
        numbers = sorted({number for job in known if job.isDefined() for number in job.get().stageIds()})
        stages = [tracker.getStageInfo(number) for number in numbers]
        return [
            (stage.get().numCompletedTasks(), stage.get().numTasks())
            for stage in stages
            if stage.isDefined() and stage.get().submissionTime()
        ]

    def cancel(self) -> None:
        """Cancel all jobs, also those that are just about to begin, and wait until nobody reads of them."""
        self._cancel(self.tag)
        while any(thread.is_alive() for thread in self._readers):
            for thread in self._readers:
                thread.join(LOOK_SECONDS)
            self._cancel(self.tag)


class _AsTheyCome(ArrowStreamSerializer):
    """Reads what `collectAsArrowToPython` writes: batches in the order in which tasks finish, then their numbers."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        yield from super().load_stream(stream)
        (count,) = struct.unpack("!i", stream.read(4))
        if count < 0:
            raise PySparkRuntimeError("the job has failed")  # the server says why
        stream.read(4 * count)


@contextmanager
def jobs_of_one_run(session: Any, stop: threading.Event | None = None) -> Iterator[Jobs]:
    """Mark the jobs that are started in context; when it is left by an error, also Ctrl-C, they are cancelled.

    A job that nobody waits for any more would go on, and write into a folder that is gone.
    """
    tag = f"squill-{uuid.uuid4().hex}"
    # Spark Connect has no context, and tags of its own; elsewhere only those of the context stop a job.
    context = None if is_connect(session) else session.sparkContext
    add = session.addTag if context is None else context.addJobTag
    remove = session.removeTag if context is None else context.removeJobTag
    cancel = session.interruptTag if context is None else context.cancelJobsWithTag
    before = sys.exception()
    add(tag)
    jobs = Jobs(tag, session, cancel, stop)
    try:
        yield jobs
    except BaseException as error:
        if not is_stopped(session):
            jobs.cancel()
        # Spark cancels the jobs at Ctrl-C, and raises an error about that in its place.
        if came_of_an_interrupt(error, before):
            raise KeyboardInterrupt from None
        if isinstance(error, Exception) and context is not None and has_lost_java(context):
            raise java_is_gone() from error
        raise
    finally:
        if not is_stopped(session):
            remove(tag)


def as_often_as_rows_are_lost(job: Callable[[], T]) -> T:
    """Run a whole job again where Spark runs part of one again: with an executor rows are lost that have moved."""
    for _ in range(1, ATTEMPTS):
        try:
            return job()
        except (PySparkException, Py4JError) as error:
            if CANNOT_GO_BACK not in str(error):
                raise
    return job()


def failed_without_a_word(error: Exception, fragments: Sequence[Fragment] = ()) -> ShardError:
    """Return the error for a task that died before it could say why: what Spark says, and of which fragments."""
    where = ", ".join(fragment.title for fragment in fragments)
    raised = RAISED.findall(str(error))
    reason = raised[-1] if raised else _reason(error)
    return ShardError(
        f"{where}{': ' if where else ''}a Spark task failed: {reason}", _hint(reason, is_raised=bool(raised))
    )


def _hint(reason: str, *, is_raised: bool) -> str:
    if (missing := MISSING.search(reason)) is not None:
        return (
            f"install {missing.group(1)!r} where the executors find it, or send it along before: "
            "session.sparkContext.addPyFile(path)."
        )
    if is_raised:
        return "Spark's own error, with where it was raised, is the cause."
    if WAS_STOPPED in reason:
        return "start another session, and make another cluster on it with sq.spark(session)."
    if CANCELLED.search(reason):
        return "somebody has cancelled it, in Spark's web pages or by the session's context: run it again."
    if SAID.match(reason):
        return "Spark's own error is the cause."
    return (
        "a worker that exits without an error was killed, often for want of memory: more shards, such as "
        "redistribute(to=…) makes, hold less at once. Spark's own error is the cause."
    )


def _reason(error: Exception) -> str:
    """Return the line of Spark's error that says why; the first ones say which Java method was called."""
    lines = [line.strip(" \t:") for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "Job aborted" in line or "Job cancelled" in line or "SparkException: " in line]
    reasons = [line for line in reasons if "awaitResult" not in line]  # it only says that there is another
    return OF_SPARK.sub("", (reasons or lines or [type(error).__name__])[0], count=1)
