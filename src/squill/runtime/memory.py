"""Datasets in memory: frames that this process holds, and folders of a memory filesystem that clusters own."""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from dataclasses import replace
from pathlib import Path

import polars as pl

from squill.engine.egress import result_frame
from squill.plan.build.movement import refuse_bound_columns
from squill.plan.dataset import Dataset
from squill.plan.fragments import fragments_of
from squill.runtime.answer import CollectAnswer, Receipt
from squill.runtime.progress import progress_bar
from squill.runtime.runtime import Runtime
from squill.runtime.store import Wanted, described
from squill.runtime.stored_answer import WrittenFile
from squill.runtime.ticket import RunTicket
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["FRAME", "MemoryFolder", "forget_frame", "frame_of", "hold", "is_alive", "new_owner"]

FRAME = "frame"
"""The format of a dataset that is a frame of this process."""
PREFIX = "squill-memory-"

_frames: dict[str, pl.DataFrame] = {}
"""By version. All clusters of the process share them, as they share its memory."""


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


def frame_of(version: str) -> pl.DataFrame | None:
    """Return the rows of a dataset that this process holds."""
    return _frames.get(version)


def forget_frame(version: str) -> None:
    """Free the rows; plans that were made over them keep them while they live."""
    _frames.pop(version, None)


def hold(runtime: Runtime, wanted: Wanted, ticket: RunTicket) -> Dataset:
    """Run the plan and keep its answer as a frame, in which the rows of each shard stand together."""
    refuse_bound_columns(wanted.node.schema, wanted.operator)
    plan = fragments_of(wanted.node)
    with progress_bar() as bar:
        receipts = runtime.run(plan, CollectAnswer(keeps_shards=True), bar, ticket=ticket)
    receipts.sort(key=lambda receipt: receipt.shard)  # tasks end in any order
    frames = [_frame(receipt, wanted) for receipt in receipts]
    notes = [
        Receipt(shard=receipt.shard, note=_note(receipt, frame))
        for receipt, frame in zip(receipts, frames, strict=True)
    ]
    version = wanted.version or ticket.id
    dataset = described(replace(wanted, version=version), f"memory:{version}", notes)
    _frames[dataset.version] = pl.concat(frames, rechunk=False)
    return dataset


def _frame(receipt: Receipt, wanted: Wanted) -> pl.DataFrame:
    return result_frame(receipt.rows(wanted.node), wanted.node)


def _note(receipt: Receipt, frame: pl.DataFrame) -> WrittenFile:
    span = None
    if receipt.pieces:
        first = min(int(piece.sync[0]) for piece in receipt.pieces)
        span = (max(first, MINUS_INFINITY), min(max(int(piece.other.max()) for piece in receipt.pieces), INFINITY))
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
