"""Runs of one cluster: every action that runs a plan has an id, and is recorded where there is a catalog."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from squill.errors import ClusterError
from squill.exchange.flow import Halted
from squill.plan.fragments import ShardedPlan, explain_plan, fragments_of
from squill.plan.node import Node
from squill.runtime.batches import batches
from squill.runtime.collect import Run, collect, run
from squill.runtime.interrupts import to_the_end
from squill.runtime.memory import is_alive, new_owner
from squill.runtime.request import Request, without_password
from squill.runtime.run_folder import About, driver_lives, left_runs
from squill.runtime.runtime import Runtime
from squill.runtime.ticket import RunTicket, new_id

if TYPE_CHECKING:
    # SQLAlchemy takes longer to import than many a run; it is loaded where there is a catalog.
    from squill.catalog import Catalog, RunRecord

__all__ = ["ActiveRun", "Runs", "with_state"]

DIED = "died"
"""The state of a run that says it is running, and whose driver is no more."""


@dataclass
class ActiveRun:
    """A run while it lasts; whoever runs it says how many `rows` its answer has."""

    ticket: RunTicket
    rows: int | None = None

    def asking(self, request: Request) -> RunTicket:
        """Return the ticket with what another driver needs to go on; one that goes on has it already."""
        return self.ticket if self.ticket.left is not None else replace(self.ticket, request=request)


class Runs:
    """Runs plans, and records it.

    ``url``      of the catalog.
    ``default``  the file of the catalog, when nobody has chosen one: then it is used only if it is there already, so
                 that a query by itself leaves nothing in the working folder.
    """

    def __init__(self, runtime: Runtime, url: str, default: Path | None) -> None:
        self.runtime = runtime
        self.url = url
        self._default = default
        self._catalog: Catalog | None = None
        self.owner = new_owner()

    @property
    def catalog(self) -> Catalog:
        """The catalog; opened, and made, when it is first asked for."""
        if self._catalog is None:
            from squill.catalog import Catalog

            self._catalog = Catalog(self.url)
        return self._catalog

    @property
    def has_catalog(self) -> bool:
        """Whether runs are recorded."""
        return self._catalog is not None or self._default is None or self._default.exists()

    # -- what can be asked for ----------------------------------------------------------------------------

    def collect(self, node: Node, *, sort: bool) -> pl.DataFrame:
        """Run the plan and return its rows."""
        plan = fragments_of(node)
        with self.record("collect", plan) as active:
            ticket = active.asking(self.request("collect", sort=sort))
            frame = collect(self.runtime, plan, sort=sort, ticket=ticket)
            active.rows = frame.height
        return frame

    def run(self, node: Node) -> Run:
        """Run the plan and return its rows with a report."""
        plan = fragments_of(node)
        with self.record("run", plan) as active:
            made = run(self.runtime, plan, active.asking(self.request("run")))
            active.rows = made.frame.height
        return made

    def batches(self, node: Node) -> Iterator[pl.DataFrame]:
        """Run the plan and yield its rows in frames, as shards finish."""
        plan = fragments_of(node)
        with self.record("batches", plan) as active:
            rows = 0
            ticket = active.asking(self.request("batches"))
            for frame in batches(self.runtime, plan, ticket):
                rows += frame.height
                yield frame
            active.rows = rows

    def request(self, action: str, *, sort: bool = False) -> Request:
        """Return what another driver needs to know."""
        return Request(action=action, sort=sort, catalog=without_password(self.url) if self.has_catalog else None)

    # -- what is recorded ---------------------------------------------------------------------------------

    def listed(self) -> list[RunRecord]:
        """Return the runs of the catalog, and those whose folders are beside this cluster's, the first one first."""
        records = {record.id: record for record in self.catalog.runs()} if self.has_catalog else {}
        place = self.runtime.run_place("")
        for run_id, folder in left_runs(place.parent).items() if place is not None else ():
            if run_id not in records and (about := About.read(folder)) is not None:
                records[run_id] = _as_record(about, folder)
        return sorted(map(with_state, records.values()), key=lambda record: record.started)

    @contextmanager
    def record(self, action: str, plan: ShardedPlan, dataset: str | None = None) -> Iterator[ActiveRun]:
        """Give a run an id, and record it while in context; how that is left says how the run ended."""
        started = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        named = {"id": new_id(), "action": action, "owner": self.owner, "started": started, "dataset": dataset}
        ticket = RunTicket(**named, plan=explain_plan(plan))  # type: ignore[arg-type]
        with self.recorded(ActiveRun(ticket)) as active:
            yield active

    @contextmanager
    def recorded(self, active: ActiveRun) -> Iterator[ActiveRun]:
        """Record a run, also one that goes on, while in context; what it has kept goes afterwards."""
        with active.ticket.scope:
            if not self.has_catalog:
                yield active
                return
            try:
                self._begin(active.ticket)
            except KeyboardInterrupt as interrupt:
                self._end(active, interrupt, is_failure=False)
                raise
            yield from self._until_the_end(active)

    def _until_the_end(self, active: ActiveRun) -> Iterator[ActiveRun]:
        try:
            yield active
        except BaseException as error:
            is_failure = isinstance(error, Exception) and not isinstance(error, Halted)
            to_the_end(partial(self._end, active, error, is_failure=is_failure))
            raise
        to_the_end(partial(self._end, active, None, is_failure=False))

    def _begin(self, ticket: RunTicket) -> None:
        place = self.runtime.run_place(ticket.id) if ticket.left is None else ticket.left[0].path
        self.catalog.begin_run(_as_record(ticket, place))

    def _end(self, active: ActiveRun, error: BaseException | None, *, is_failure: bool) -> None:
        from squill.catalog.catalog import CANCELLED, DONE, FAILED

        state = DONE if error is None else FAILED if is_failure else CANCELLED
        try:
            self.catalog.end_run(active.ticket.id, state, active.rows if error is None else None, error)
        except ClusterError as trouble:
            # The run is over, well or not: nobody is to lose an answer, or see another error, for the record's sake.
            said = f"the end of run {active.ticket.id} is not recorded: {trouble.what}"
            if error is None:
                warnings.warn(said, RuntimeWarning, stacklevel=2)
            else:
                error.add_note(said)

    def close(self) -> None:
        """Close the catalog."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


def with_state(record: RunRecord) -> RunRecord:
    """Return the record as it is now: nobody has written down that a driver died."""
    if record.state != "running":
        return record
    lives = None if record.folder is None else driver_lives(Path(record.folder))
    if lives is None:
        lives = is_alive(record.owner)
    return record if lives else replace(record, state=DIED)


def _as_record(told: About | RunTicket, folder: Path | None) -> RunRecord:
    from squill.catalog import RunRecord

    return RunRecord(
        id=told.id,
        action=told.action,
        dataset=told.dataset,
        owner=told.owner,
        started=told.started,
        plan=told.plan,
        folder=None if folder is None else str(folder),
    )
