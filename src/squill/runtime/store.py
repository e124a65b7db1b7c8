"""Run a plan and keep its answer as a dataset: files of all shards and their manifest, visible in one step."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from squill.arguments import is_one_of
from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.errors import ClusterError, PlanError
from squill.plan.assignment import STEP, Assignment, Stratified
from squill.plan.build.live import growing
from squill.plan.dataset import MANIFEST, STATE, STORAGE, Dataset, ShardFile
from squill.plan.fragments import explain_fragments, fragments_of
from squill.plan.node import Node, walk
from squill.plan.nodes import Source
from squill.plan.placement import layout_of, placement_of
from squill.plan.rewrite.leave_out_movements import leave_out_movements
from squill.plan.schema import Schema
from squill.plan.storable import refuse_unstorable
from squill.runtime.answer import Receipt
from squill.runtime.live.keep import run_with_state
from squill.runtime.progress import progress_bar
from squill.runtime.removal import remove_folder
from squill.runtime.runtime import Runtime
from squill.runtime.staging import Staging
from squill.runtime.stored_answer import StoredAnswer, WrittenFile, sync_to_disk
from squill.runtime.ticket import RunTicket, new_id
from squill.wording import shortened

__all__ = ["SUFFIXES", "Wanted", "described", "store", "write_manifest"]

SUFFIXES = {"parquet": "parquet", "ipc": "arrow"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The dataset that is to be made, as the user asked for it.

    ``version``  None, or that of a dataset whose files are made again under their old names.
    ``keep_state``  whether a live query is to be able to go on from it.
    ``progress``  in the order of which progress rows are to be written.
    """

    node: Node
    keys: tuple[str, ...]
    path: str | os.PathLike[str]
    name: str | None = None
    format: str = "parquet"
    mode: str = "error"
    place: str = STORAGE
    version: str | None = None
    operator: str = "to_storage"
    keep_state: bool = False
    progress: Assignment | None = None


def store(
    runtime: Runtime,
    wanted: Wanted,
    ticket: RunTicket | None = None,
    announce: Callable[[Dataset], None] = lambda _: None,
) -> Dataset:
    """Run the plan, write its answer and `announce` it; left by an error, of that too, everything is as it was."""
    if not is_one_of(wanted.format, SUFFIXES):
        raise PlanError(f"{wanted.operator}: format is {shortened(wanted.format)}", 'use "parquet" or "ipc".')
    refuse_unstorable(wanted.node.schema, wanted.operator, wanted.format)
    refuse_progress(wanted)
    node = growing(wanted.node, wanted.operator) if wanted.keep_state else wanted.node
    run_id = new_id() if ticket is None else ticket.id
    with Staging(Path(wanted.path), wanted.mode, wanted.operator, run_id) as staging:
        attempts = staging.folder / "attempts"
        attempts.mkdir()
        if wanted.keep_state:
            receipts = run_with_state(runtime, node, attempts, staging.folder / STATE, wanted.format)
        else:
            with progress_bar() as bar:
                answer = StoredAnswer(
                    folder=str(attempts),
                    format=wanted.format,
                    progress=wanted.progress,
                    shards=layout_of(node).shards,
                    inputs=tuple(dict.fromkeys(item.label for item in walk(node) if isinstance(item, Source))),
                )
                receipts = runtime.run(fragments_of(node), answer, bar, ticket=ticket)
        dataset = described(wanted, str(staging.target), receipts)
        _name_files(staging.folder, dataset, receipts)
        # Without it, an attempt that does not count and is still running has nowhere to write.
        remove_folder(attempts)
        write_manifest(staging.folder, dataset)
        staging.commit()
        # Before the files that were there go: that takes a while, and then there is no way back.
        announce(dataset)
    return dataset


def described(wanted: Wanted, path: str, receipts: list[Receipt]) -> Dataset:
    """Return what is to be known of the answer."""
    node = wanted.node
    version = wanted.version or new_id()
    shards = layout_of(node).shards
    # A movement that was left out says nothing of where rows live, unless they all live in one place.
    placement = placement_of(node if shards == 1 else leave_out_movements(node))
    is_timed = node.time is not None and not node.properties.per_window
    return Dataset(
        name=wanted.name,
        path=path,
        place=wanted.place,
        format=wanted.format,
        version=version,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        columns=Schema(result_frame(Batch.empty(dict(node.schema)), node).schema),
        timed=is_timed,
        duration=node.properties.duration if is_timed else None,
        keys=wanted.keys,
        placed_by=None if placement is None else placement.keys,
        shards=shards,
        files=tuple(_file(receipt, version, wanted.format, is_timed=is_timed) for receipt in receipts),
        lineage=explain_fragments(node),
        keeps_state=wanted.keep_state,
        progress=None if wanted.progress is None else wanted.progress.order,
    )


def refuse_progress(wanted: Wanted) -> None:
    """Raise when the rows cannot be written in the order that is asked for."""
    progress, operator = wanted.progress, wanted.operator
    if progress is None:
        return
    if not isinstance(progress, Assignment):
        raise PlanError(
            f"{operator}: progress is {shortened(progress)}", "give sq.progress.hashed(…), fractions(…) or the like."
        )
    if wanted.format != "parquet":
        raise PlanError(
            f"{operator}: files of the format {wanted.format!r} have no row groups to cut where steps end",
            'leave format out, or say "parquet".',
        )
    if wanted.keep_state:
        raise PlanError(
            f"{operator}: keep_state says that more rows follow; the order of progress takes all of them",
            "leave one of progress= and keep_state= out.",
        )
    if STEP in wanted.node.schema:
        raise PlanError(f"{operator}: there is a column {STEP!r} already, where the steps go", "rename it.")
    progress.check(wanted.node.schema, f"{operator}: progress {progress}")
    if isinstance(progress, Stratified) and not _has_whole_keys(wanted.node, progress.key):
        raise PlanError(
            f"{operator}: rows of one {', '.join(progress.key)} are on several shards, where {progress} counts them",
            f"bring them together first: .rekey({', '.join(map(repr, progress.key))}).redistribute().",
        )


def _has_whole_keys(node: Node, key: tuple[str, ...]) -> bool:
    placed = placement_of(node)
    return layout_of(node).shards == 1 or (
        placed is not None and placed.keys is not None and set(placed.keys) <= set(key)
    )


def _file(receipt: Receipt, version: str, file_format: str, *, is_timed: bool) -> ShardFile:
    note: WrittenFile = receipt.note
    low, high = note.span if is_timed and note.span is not None else (None, None)
    turn = "" if note.turn is None else f"-{note.turn:05}"
    name = f"part-{receipt.shard:05}{turn}-{version}.{SUFFIXES.get(file_format, file_format)}"
    return ShardFile(shard=receipt.shard, name=name, rows=note.rows, bytes=note.bytes, low=low, high=high)


def _name_files(folder: Path, dataset: Dataset, receipts: list[Receipt]) -> None:
    """Give the files of the attempts that count their names."""
    for file, receipt in zip(dataset.files, receipts, strict=True):
        try:
            Path(receipt.note.path).rename(folder / file.name)
        except FileNotFoundError as error:
            raise ClusterError(
                f"{dataset.path!r}: the file of shard {file.shard} is not there",
                "all machines must see the folder under the same path.",
            ) from error


def write_manifest(folder: Path, dataset: Dataset) -> None:
    """Say in a folder which dataset it is; written last."""
    place = folder / MANIFEST
    place.parent.mkdir(exist_ok=True)
    place.write_text(dataset.to_json(), encoding="utf-8")
    sync_to_disk(place)
