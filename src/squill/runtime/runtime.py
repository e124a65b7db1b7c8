"""What every runtime offers."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from squill.plan.fragments import ShardedPlan
from squill.plan.layout import Layout
from squill.plan.schema import Schema
from squill.runtime.answer import Answer, OnReceipt, Receipt
from squill.runtime.progress import OnProgress
from squill.runtime.report import Work
from squill.runtime.ticket import RunTicket

if TYPE_CHECKING:
    from squill.plan.nodes.live import LiveSource
    from squill.runtime.live.host import LivePlan
    from squill.runtime.live.inputs import LiveInput
    from squill.runtime.live.runner import Runner
    from squill.runtime.memory import Held
    from squill.runtime.progressive.outlet import Outlet
    from squill.runtime.progressive.status import Watch

__all__ = ["Runtime"]


class Runtime(Protocol):
    """Runs the fragments of a plan on its shards.

    ``can_go_on``    whether it can go on with a run that another driver began.
    ``keeps_state``  whether the shards of a live query stay where they are, so that they need no checkpoint.
    """

    can_go_on: bool
    keeps_state: bool

    @property
    def shards(self) -> int:
        """How many shards it runs at once; what a plan is cut into unless it says otherwise."""
        ...

    def layout_of(self, shards: int) -> Layout:
        """Return how it arranges so many shards."""
        ...

    def describe(self) -> str:
        """Return the words for it in `repr`."""
        ...

    def run(
        self,
        plan: ShardedPlan,
        answer: Answer,
        on_progress: OnProgress | None = None,
        *,
        on_receipt: OnReceipt | None = None,
        stop: Event | None = None,
        works: list[Work] | None = None,
        ticket: RunTicket | None = None,
    ) -> list[Receipt]:
        """Run the plan, give its rows to `answer`, and return a receipt of each shard, in their order.

        ``on_receipt``  is given the receipts as shards finish, from any thread, and may take its time; their rows
                        are not returned then, so that nobody holds all of them.
        ``stop``        once set, the work ends as soon as can be, with `Halted`.
        ``works``       is given what each shard of each fragment did.
        ``ticket``      which run it is; a runtime that can lets another driver go on with it.
        """
        ...

    def run_early(self, plan: ShardedPlan, outlet: Outlet, *, stop: Event, watch: Watch, ha: bool) -> None:
        """Run the plan, whose time is progress, and hand the answer's changes to the outlet while it runs.

        ``stop``   once set, the work ends as soon as can be.
        ``watch``  is told how far shards are.
        ``ha``     keep what moved, so that a run that loses a task need not begin at the beginning.
        """
        ...

    def refuse_early(self, *, ha: bool) -> None:
        """Raise when early answers cannot be had here."""
        ...

    def refuse_channel(self, channel: str, operator: str) -> None:
        """Raise when rows cannot move that way here."""
        ...

    def run_place(self, run_id: str) -> Path | None:
        """Return where a run keeps what it has done so far, if it does: another driver can go on from there."""
        ...

    def check(self) -> str:
        """Return what its workers have, as text; raise when tasks could not run there."""
        ...

    def table_columns(self, table: Any) -> Schema:
        """Return the columns of a table of its own, such as a Spark DataFrame."""
        ...

    def to_table(self, plan: ShardedPlan) -> Any:
        """Return the answer as a table of its own, such as a Spark DataFrame."""
        ...

    def stream_columns(self, table: Any) -> Schema:
        """Return the columns of a streaming table of its own."""
        ...

    @property
    def session(self) -> Any:
        """The Spark session; None where there is none."""
        ...

    def live_input(self, source: LiveSource, checkpoint: Path | None, number: int) -> LiveInput:
        """Return what follows a live source, number `number` of its query."""
        ...

    def live_runner(self, plan: LivePlan) -> Runner:
        """Return what runs the shards of a live query."""
        ...

    def memory_folder(self) -> Path | None:
        """Return a folder in memory that all shards see; None where what is kept in memory is no files (`hold`)."""
        ...

    def hold(self, plan: ShardedPlan, on_progress: OnProgress | None, ticket: RunTicket) -> tuple[list[Receipt], Held]:
        """Run the plan and keep its answer in memory; return notes of its shards, and what holds the rows."""
        ...

    def close(self) -> None:
        """Give back what it holds; later calls do nothing."""
        ...
