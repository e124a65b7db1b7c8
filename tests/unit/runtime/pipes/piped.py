"""Piped plans without Spark: the tasks are threads of this process, each with its own server and clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import squill as sq
from squill.exchange.flow import Halted
from squill.plan.fragments import ShardedPlan
from squill.plan.layout import Layout
from squill.runtime.local.runtime import LocalRuntime
from squill.runtime.progressive.outlet import Outlet
from squill.runtime.progressive.status import Watch
from squill.runtime.spark.pipes.hub import Hub
from squill.runtime.spark.pipes.job import PipeJob, prepared
from squill.runtime.spark.pipes.kept import kept_fragments
from squill.runtime.spark.pipes.member import Invitation, run_member
from squill.runtime.spark.pipes.wire import Certificate, Pass
from squill.time import MINUS_INFINITY

__all__ = ["PipedRuntime", "piped"]

LOOPBACK = "127.0.0.1"


class PipedRuntime(LocalRuntime):
    """`machines` of one core, shared by `tasks` tasks.

    ``hub``        that of the last attempt.
    ``break_off``  once set, the attempt that runs is broken off as if a task were lost, and another begins.
    ``jobs``       of the attempts that were broken off.
    """

    def __init__(self, machines: int, tasks: int, certificate: Certificate | None = None) -> None:
        super().__init__(1, machines)
        self._tasks = tasks
        self._certificate = certificate
        self.hub: Hub | None = None
        self.folder: Path | None = None
        self.break_off = threading.Event()
        self.jobs: list[PipeJob] = []
        self.on_begin: Callable[[Hub, Invitation], object] = lambda *_: None

    def layout_of(self, shards: int) -> Layout:
        return Layout(shards=shards, cores=1)

    def run_early(self, plan: ShardedPlan, outlet: Outlet, *, stop: threading.Event, watch: Watch, ha: bool) -> None:
        ready = prepared(plan, tasks=self._tasks, cores=1)
        job = ready.job
        if ha:
            assert self.folder is not None
            job = replace(job, kept=kept_fragments(plan), folder=str(self.folder))
        while True:
            access = Pass(certificate=self._certificate)
            with Hub(LOOPBACK, access, job, frames=ready.frames, tallies=ready.tallies, outlet=outlet) as hub:
                self.hub, watch.look = hub, hub.clocks
                invitation = Invitation((LOOPBACK, hub.port), access)
                self.on_begin(hub, invitation)
                self._run_members(invitation, hub, stop)
                if hub.error is not None:
                    raise hub.error
                if outlet.is_complete:
                    return
                if stop.is_set():
                    raise Halted
                taken = outlet.start_over()
            self.jobs.append(job)
            watch.restarts += 1
            since = None if not ha or taken == MINUS_INFINITY else taken - 1
            job = replace(job, since=since, attempt=outlet.attempt)

    def _run_members(self, invitation: Invitation, hub: Hub, stop: threading.Event) -> None:
        members = [
            threading.Thread(target=run_member, args=(invitation, task), daemon=True) for task in range(self._tasks)
        ]
        for member in members:
            member.start()
        while any(member.is_alive() for member in members):
            if stop.wait(0.005):
                hub.stop()
            elif self.break_off.is_set():
                self.break_off.clear()
                hub.stop()


def piped(machines: int, tasks: int, certificate: Certificate | None = None) -> sq.Cluster:
    return sq.Cluster(PipedRuntime(machines, tasks, certificate))
