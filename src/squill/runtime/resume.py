"""Go on with a run whose driver died, from what is in its folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from squill.errors import ClusterError, PlanError, RunNotFoundError
from squill.plan.dataset import MEMORY, Dataset, find_dataset
from squill.runtime.collect import Run, collect, run
from squill.runtime.memory import new_owner
from squill.runtime.request import Request
from squill.runtime.run_folder import KEPT_DAYS, About, Order, RunFolder, left_runs, versions
from squill.runtime.runs import ActiveRun, Runs, with_state
from squill.runtime.ticket import RunTicket

if TYPE_CHECKING:
    from squill.catalog import Catalog, RunRecord
    from squill.runtime.datasets import Datasets

__all__ = ["Resumed", "answer_of_finished", "check_alone", "find_folder", "go_on", "taken"]

Resumed = pl.DataFrame | Run | Dataset | int
"""What the action of the run would have returned; of `batches` all rows in one frame."""

PATIENCE_SECONDS = 1.0
STORING = ("to_storage", "to_memory", "to_ipc")


def find_folder(run_id: str, bases: Sequence[Path], record: RunRecord | None, catalog: Catalog | None) -> Path:
    """Return the folder of a run, or raise with what is known of it."""
    places = [*bases, *([Path(record.folder).parent] if record is not None and record.folder is not None else [])]
    left = {name: path for base in places for name, path in left_runs(base).items()}
    if run_id in left:
        return left[run_id]
    if record is not None:
        raise _not_left(with_state(record))
    begun = [] if catalog is None else [item.id for item in map(with_state, catalog.runs()) if item.state == "died"]
    raise RunNotFoundError("resume", run_id, dict.fromkeys([*left, *begun]))


def answer_of_finished(record: RunRecord, catalog: Catalog) -> Dataset | int | None:
    """Return the dataset that a run has made, when it is done and the dataset is still there."""
    if record.state != "done" or record.action not in STORING or record.dataset is None:
        return None
    entry = catalog.find(record.dataset)
    dataset = find_dataset(Path(record.dataset)) if entry is None else entry.dataset
    if dataset is None or dataset.version != record.id:
        return None
    return dataset.rows if record.action == "to_ipc" else dataset


def _not_left(record: RunRecord) -> ClusterError:
    made = "" if record.dataset is None else f" {record.dataset!r}"
    said = f"resume: run {record.id} ({record.action}{made})"
    again = "run the query again."
    if record.state == "failed":
        why = str(record.error).partition("\nHint: ")
        return ClusterError(f"{said} failed: {why[0]}", why[2] or again)
    if record.state == "running":
        return ClusterError(f"{said} is still running: {_driver(record.owner)}", "wait for it, or stop it first.")
    if record.state == "died":
        return ClusterError(
            f"{said} has left nothing to go on from",
            f"{again} Runs on Spark that move rows as files can be resumed, for {KEPT_DAYS} days after they died.",
        )
    return ClusterError(f"{said} is {record.state}: there is nothing left to do", again)


@contextmanager
def taken(run_id: str, path: Path) -> Iterator[tuple[RunFolder, Order]]:
    """Take a dead driver's folder while in context, which is as it was afterwards, unless `go_on` was called."""
    folder = _folder(run_id, path)
    try:
        yield folder, _order(folder)
    finally:
        folder.release()


def _folder(run_id: str, path: Path) -> RunFolder:
    deadline = time.monotonic() + PATIENCE_SECONDS
    # Whoever lists runs looks at the lock for a moment.
    while (folder := RunFolder.take(path, new_owner())) is None:
        if time.monotonic() < deadline:
            time.sleep(PATIENCE_SECONDS / 20)
            continue
        about = About.read(path)
        if about is None:
            raise ClusterError(f"resume: {str(path)!r} is no folder of a run that can be read", "may you read it?")
        raise ClusterError(
            f"resume: run {run_id} is still running: {_driver(about.owner)}", "wait for it, or stop it first."
        )
    return folder


def _order(folder: RunFolder) -> Order:
    about = folder.about
    if about.versions != (mine := versions()):
        listed = [", ".join(f"{name} {number}" for name, number in found.items()) for found in (about.versions, mine)]
        raise ClusterError(
            f"resume: run {about.id} was begun with {listed[0]}, and this is {listed[1]}",
            "plans are read by the versions that wrote them; use those.",
        )
    try:
        order = folder.order()
    except Exception as error:  # whatever a user's function needs may be missing here
        raise ClusterError(
            f"resume: the plan of run {about.id} cannot be read: {type(error).__name__}: {error}",
            "modules that its functions are from must be found here as they were there.",
        ) from error
    if order is None:
        with folder:
            raise ClusterError(
                f"resume: the driver of run {about.id} died before its first stage began", "run the query again."
            )
    if changed := order.changed_sources():
        raise ClusterError(
            f"resume: {changed[0]!r} has changed since run {about.id} began",
            "the stages that are done have read it as it was; run the query again.",
        )
    return order


def _driver(owner: str) -> str:
    host, pid, _ = owner.rsplit(":", 2) if owner.count(":") >= 2 else ("?", "?", "")
    return f"process {pid} on {host}"


def check_alone(run_id: str, request: Request, catalog: str | None) -> None:
    """Raise when a cluster that is started for the run, with this catalog, could not keep its answer."""
    if request.wanted is None or request.wanted.name is None:
        return
    if request.wanted.place == MEMORY:
        raise PlanError(
            f"resume: run {run_id} keeps its answer in the memory of a cluster", "say which: sq.resume(…, on=cluster)."
        )
    if catalog is None:
        raise PlanError(
            f"resume: run {run_id} makes the dataset {request.wanted.name!r} in a catalog whose URL has a password, "
            "which is not written down",
            "give it again: sq.resume(…, catalog=…).",
        )


def go_on(runs: Runs, datasets: Datasets, folder: RunFolder, order: Order) -> Resumed:
    """Do what is left to do, and return what the driver that died would have.

    The folder goes, unless there is an error before anything is done: who mends that may try again.
    """
    about, request = folder.about, order.request
    ticket = RunTicket(
        id=about.id,
        action=about.action,
        owner=runs.owner,
        started=about.started,
        dataset=about.dataset,
        plan=about.plan,
        request=request,
        left=(folder, order),
    )
    with runs.recorded(ActiveRun(ticket)) as active:
        if request.wanted is not None:
            dataset = datasets.go_on(request, active)
            return dataset.rows if request.action == "to_ipc" else dataset
        if request.action == "run":
            made = run(runs.runtime, order.plan, ticket)
            active.rows = made.frame.height
            return made
        frame = collect(runs.runtime, order.plan, sort=request.sort, ticket=ticket)
        active.rows = frame.height
        return frame
