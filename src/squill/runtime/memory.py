"""Datasets in memory: rows that this process or its runtime holds, and folders of a memory filesystem."""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import polars as pl

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.plan.build.movement import refuse_bound_columns
from squill.plan.build.sources import held_source
from squill.plan.dataset import Dataset
from squill.plan.fragments import ShardedPlan, fragments_of
from squill.plan.node import Node
from squill.runtime.answer import CollectAnswer, Receipt
from squill.runtime.progress import OnProgress, progress_bar
from squill.runtime.runtime import Runtime
from squill.runtime.store import Wanted, described
from squill.runtime.stored_answer import WrittenFile
from squill.runtime.ticket import RunTicket
from squill.time import INFINITY, MINUS_INFINITY

__all__ = [
    "FRAME", "Held", "HeldFrame", "MemoryFolder", "forget_held", "held_for", "hold", "hold_in_process", "is_alive",
    "new_owner", "note_of",
]  # fmt: skip

FRAME = "frame"
"""The format of a dataset that is no files: frames of this process, or of its runtime."""
PREFIX = "squill-memory-"


def new_owner() -> str:
    """Return a name for a cluster that tells whether its process still lives."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def is_alive(owner: str) -> bool:
    """Whether the owner's process may still be there; of other hosts nothing is known."""
    host, pid, _ = owner.rsplit(":", 2)
    return host != socket.gethostname() or _process_exists(pid)


def _process_exists(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True


class Held(Protocol):
    """The rows of a dataset that no files have."""

    def serves(self, runtime: Runtime) -> bool:
        """Whether they are still there, and the runtime's shards can be given them."""
        ...

    def source(self, dataset: Dataset) -> Node:
        """Return the rows as what a plan reads."""
        ...

    def frame(self, dataset: Dataset) -> pl.DataFrame:
        """Return the rows, those of a shard behind one another, in this process."""
        ...

    def free(self) -> None:
        """Give their memory back; plans that were made over them may keep them while they live."""
        ...


class HeldFrame:
    """Rows that this process holds."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def serves(self, runtime: Runtime) -> bool:
        return True

    def source(self, dataset: Dataset) -> Node:
        return held_source(dataset, self._frame)

    def frame(self, dataset: Dataset) -> pl.DataFrame:
        return self._frame

    def free(self) -> None:
        """Nothing but the registry holds them here."""


_held: dict[str, list[Held]] = {}
"""By version. All clusters of the process share them, as they share its memory."""


def held_for(version: str, runtime: Runtime) -> Held | None:
    """Return the rows of a dataset that a runtime can read."""
    return next((held for held in _held.get(version, []) if held.serves(runtime)), None)


def forget_held(version: str, held: Held | None = None) -> None:
    """Free the rows of a dataset, all of them or one copy."""
    mine = _held.pop(version, [])
    others = [] if held is None else [other for other in mine if other is not held]
    for other in mine:
        if other not in others:
            other.free()
    if others:
        _held[version] = others


def hold(runtime: Runtime, wanted: Wanted, ticket: RunTicket) -> tuple[Dataset, Held]:
    """Run the plan and keep its answer where the runtime's memory is."""
    refuse_bound_columns(wanted.node.schema, wanted.operator)
    plan = fragments_of(wanted.node)
    with progress_bar() as bar:
        receipts, held = runtime.hold(plan, bar, ticket)
    receipts.sort(key=lambda receipt: receipt.shard)  # tasks end in any order
    version = wanted.version or ticket.id
    dataset = described(replace(wanted, version=version), f"memory:{version}", receipts)
    _held.setdefault(version, []).append(held)
    return dataset, held


def hold_in_process(
    runtime: Runtime, plan: ShardedPlan, on_progress: OnProgress | None, ticket: RunTicket
) -> tuple[list[Receipt], Held]:
    """Run a plan and keep its answer as a frame; return notes of its shards."""
    receipts = runtime.run(plan, CollectAnswer(keeps_shards=True), on_progress, ticket=ticket)
    root = plan.answer.root
    frames = [result_frame(receipt.rows(root), root) for receipt in receipts]
    notes = [
        Receipt(shard=receipt.shard, note=note_of(receipt.pieces, frame))
        for receipt, frame in zip(receipts, frames, strict=True)
    ]
    return notes, HeldFrame(pl.concat(frames, rechunk=False))


def note_of(pieces: Sequence[Batch], frame: pl.DataFrame) -> WrittenFile:
    """Return what is to be known of a shard's rows, which are these pieces, and as the user sees them, the frame."""
    span = None
    if pieces:
        first = min(int(piece.sync[0]) for piece in pieces)
        span = (max(first, MINUS_INFINITY), min(max(int(piece.other.max()) for piece in pieces), INFINITY))
    return WrittenFile(path="", rows=frame.height, bytes=int(frame.estimated_size()), span=span)


class MemoryFolder:
    """The folder below `base`, a memory filesystem, in which one cluster keeps its datasets; made when needed."""

    def __init__(self, base: Path, owner: str) -> None:
        self._base = base
        self._owner = owner
        self.path = base / f"{PREFIX}{owner.replace(':', '-')}"

    def place_of(self, version: str) -> Path:
        """Return the folder for a dataset, after freeing what processes that are no more have left."""
        if not self.path.exists():
            self._free_left_behind()
            self.path.mkdir(mode=0o700)
        return self.path / version

    def _free_left_behind(self) -> None:
        prefix = f"{PREFIX}{socket.gethostname()}-"
        for folder in self._base.glob(f"{prefix}*"):
            pid = folder.name.removeprefix(prefix).partition("-")[0]
            if pid.isdigit() and not _process_exists(pid):
                shutil.rmtree(folder, ignore_errors=True)

    def free(self) -> None:
        """Give back all of it."""
        shutil.rmtree(self.path, ignore_errors=True)
