"""A piped plan on Spark: one barrier stage, run again when a task is lost, and its end in every case."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from squill.errors import ClusterError
from squill.exchange.flow import Halted
from squill.plan.fragments import ShardedPlan
from squill.runtime.progressive.outlet import Outlet
from squill.runtime.progressive.status import Watch
from squill.runtime.run_folder import RunFolder
from squill.runtime.spark.jobs import failed_without_a_word, jobs_of_one_run
from squill.runtime.spark.kinds import is_one_host
from squill.runtime.spark.pipes.certificate import new_certificate
from squill.runtime.spark.pipes.hub import Hub
from squill.runtime.spark.pipes.job import PipeJob, Prepared, prepared
from squill.runtime.spark.pipes.kept import kept_fragments
from squill.runtime.spark.pipes.member import Invitation, run_member
from squill.runtime.spark.pipes.wire import Pass
from squill.runtime.spark.slots import concurrent_tasks
from squill.runtime.ticket import RunTicket, new_id
from squill.time import MINUS_INFINITY

__all__ = ["ATTEMPTS", "PipedRun", "run_pipe_task"]

ATTEMPTS = 4
"""As often as Spark tries a task."""
LOOK_SECONDS = 0.05
GRACE_SECONDS = 3.0
"""Tasks that were told to stop have so long to do it before Spark ends them."""
LOOPBACK = "127.0.0.1"

PipeTask = Callable[[Invitation, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_pipe_task(invitation: Invitation, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task: its number in, nothing out. What it has to say goes to the driver while it runs."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            run_member(invitation, number)
    yield from ()


class PipedRun:
    """One plan, whose changes go to the outlet; with a `folder`, rows that move are kept there."""

    def __init__(
        self,
        session: Any,
        plan: ShardedPlan,
        outlet: Outlet,
        *,
        machines: int,
        cores: int,
        folder: Path | None,
        tls: bool,
        task: PipeTask | None,
    ) -> None:
        self._session = session
        self._plan = plan
        self._outlet = outlet
        self._cores = cores
        widest = max(fragment.layout.machines for fragment in plan.fragments)
        self._tasks = min(widest, machines, max(1, concurrent_tasks(session)))
        self._folder = folder
        self._tls = tls
        self._task = run_pipe_task if task is None else task
        self._given_until = MINUS_INFINITY

    def run(self, stop: threading.Event, watch: Watch) -> None:
        """Run it until all changes have come, or `stop` is set: then `Halted` is raised."""
        ready = prepared(self._plan, tasks=self._tasks, cores=self._cores)
        with ExitStack() as stack:
            job = self._keeping(ready.job, stack)
            while not self._attempted(ready, job, stop, watch):
                taken = self._given_until
                since = None if self._folder is None or taken == MINUS_INFINITY else taken - 1
                job = replace(job, since=since, attempt=self._outlet.attempt)
                watch.restarts += 1

    def _keeping(self, job: PipeJob, stack: ExitStack) -> PipeJob:
        """Return the job with a folder for what is kept, which goes when the run ends."""
        if self._folder is None:
            return job
        ticket = RunTicket(id=new_id(), action="progressive", owner="", started="")
        folder = stack.enter_context(RunFolder.make(self._folder, ticket))
        return replace(job, kept=kept_fragments(job.plan), folder=str(folder.files))

    def _attempted(self, ready: Prepared, job: PipeJob, stop: threading.Event, watch: Watch) -> bool:
        """Run it once; return whether all has come, False when a task was lost and it may be tried again."""
        bound, named = _driver_addresses(self._session)
        access = Pass(certificate=new_certificate() if self._tls else None)
        with Hub(bound, access, job, frames=ready.frames, tallies=ready.tallies, outlet=self._outlet) as hub:
            watch.look = hub.clocks
            failure = self._run_job(hub, Invitation((named, hub.port), access), stop)
            if hub.error is not None:
                raise hub.error
            if self._outlet.is_complete:
                return True
            if stop.is_set():
                raise Halted
            if job.attempt + 1 < ATTEMPTS:
                # Here, not later: who still hands over what this attempt has brought is sent away.
                self._given_until = self._outlet.start_over()
                return False
        if failure is not None:
            raise failed_without_a_word(failure, self._plan.fragments) from failure
        raise ClusterError(
            f"progressive: tasks could not reach each other: {'; '.join(hub.lost)}",
            "executors must be able to connect to each other, on any port.",
        )

    def _run_job(self, hub: Hub, invitation: Invitation, stop: threading.Event) -> Exception | None:
        """Run the barrier stage to its end; return what Spark says of it when it failed."""
        cancel, is_over = threading.Event(), threading.Event()

        def look_after() -> None:
            deadline: float | None = None
            while not is_over.wait(LOOK_SECONDS):
                if stop.is_set() and not hub.is_stopped:
                    hub.stop()
                if deadline is None and hub.is_stopped and not hub.is_done:
                    deadline = time.monotonic() + GRACE_SECONDS
                if deadline is not None and time.monotonic() > deadline:
                    cancel.set()

        helper = threading.Thread(target=look_after, name="pipes", daemon=True)
        helper.start()
        try:
            with jobs_of_one_run(self._session, cancel) as jobs:
                jobs.run_at_once(partial(self._task, invitation), self._tasks)
        except Halted:
            return None
        except (PySparkException, Py4JError) as error:
            return error
        finally:
            is_over.set()
            helper.join()
        return None


def _driver_addresses(session: Any) -> tuple[str, str]:
    """Return the address that the driver listens on, and the one by which executors reach it."""
    if is_one_host(session):
        return LOOPBACK, LOOPBACK
    named = str(session.conf.get("spark.driver.host"))
    return str(session.conf.get("spark.driver.bindAddress", named)), named
