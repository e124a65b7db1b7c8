"""Piped plans without Spark: the tasks are threads of this process, each with its own server and clients."""

from __future__ import annotations

import threading
from collections.abc import Callable

import squill as sq
from squill.exchange.flow import Halted
from squill.plan.fragments import ShardedPlan
from squill.plan.layout import Layout
from squill.runtime.local.runtime import LocalRuntime
from squill.runtime.progressive.outlet import Outlet
from squill.runtime.progressive.status import Watch
from squill.runtime.spark.pipes.hub import Hub
from squill.runtime.spark.pipes.job import prepared
from squill.runtime.spark.pipes.member import Invitation, run_member
from squill.runtime.spark.pipes.wire import Certificate, Pass

__all__ = ["PipedRuntime", "piped"]

LOOPBACK = "127.0.0.1"


class PipedRuntime(LocalRuntime):
    """`machines` of one core, shared by `tasks` tasks; `hub` is that of the last run."""

    def __init__(self, machines: int, tasks: int, certificate: Certificate | None = None) -> None:
        super().__init__(1, machines)
        self._tasks = tasks
        self._certificate = certificate
        self.hub: Hub | None = None
        self.on_begin: Callable[[Hub, Invitation], object] = lambda *_: None

    def layout_of(self, shards: int) -> Layout:
        return Layout(shards=shards, cores=1)

    def run_early(self, plan: ShardedPlan, outlet: Outlet, *, stop: threading.Event, watch: Watch, ha: bool) -> None:
        ready = prepared(plan, tasks=self._tasks, cores=1)
        access = Pass(certificate=self._certificate)
        with Hub(LOOPBACK, access, ready.job, frames=ready.frames, tallies=ready.tallies, outlet=outlet) as hub:
            self.hub, watch.look = hub, hub.clocks
            invitation = Invitation((LOOPBACK, hub.port), access)
            self.on_begin(hub, invitation)
            members = [
                threading.Thread(target=run_member, args=(invitation, task), daemon=True) for task in range(self._tasks)
            ]
            for member in members:
                member.start()
            while any(member.is_alive() for member in members):
                if stop.wait(0.02):
                    hub.stop()
            if hub.error is not None:
                raise hub.error
            if not outlet.is_complete:
                raise Halted


def piped(machines: int, tasks: int, certificate: Certificate | None = None) -> sq.Cluster:
    return sq.Cluster(PipedRuntime(machines, tasks, certificate))
