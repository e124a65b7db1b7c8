"""An answer that every shard writes to a file of its own, in a folder that nobody looks into yet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from squill.engine.egress_file import FileSink
from squill.engine.egress_progress import ProgressFileSink
from squill.engine.progress.written import WrittenSteps
from squill.exchange.scatter import Outbox
from squill.plan.assignment import Assignment
from squill.plan.node import Node
from squill.runtime.answer import Part, Receipt

__all__ = ["StoredAnswer", "WrittenFile", "sync_to_disk"]


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """The note of a shard: where its file is until it is committed, and what is in it.

    ``turn``  of a shard that writes several files: which one it is.
    """

    path: str
    rows: int
    bytes: int
    span: tuple[int, int] | None
    turn: int | None = None


@dataclass(frozen=True, kw_only=True)
class StoredAnswer:
    """A file of `format` for each attempt of each shard in `folder`; none of their names ends in the format's.

    ``progress``  in the order of which progress rows are written, by this one of so many `shards`.
    ``inputs``    the names of what the rows come from, for errors.
    """

    keeps_shards: ClassVar[bool] = True

    folder: str
    format: str
    progress: Assignment | None = None
    shards: int = 1
    inputs: tuple[str, ...] = ()

    @contextmanager
    def open(self, root: Node, shard: int, attempt: int, outbox: Outbox | None) -> Iterator[Part]:
        path = Path(self.folder) / f"{shard}-{attempt}.whole"
        if self.progress is None:
            sink = FileSink(root, path, self.format, "to_storage")
        else:
            steps = WrittenSteps(self.progress, root, shard, self.shards, self.inputs)
            sink = ProgressFileSink(root, path, steps)
        try:
            yield _StoredPart(sink, path, shard)
        except BaseException:
            sink.abandon()
            path.unlink(missing_ok=True)
            raise


class _StoredPart:
    def __init__(self, sink: FileSink, path: Path, shard: int) -> None:
        self.sink = sink
        self._path = path
        self._shard = shard

    def finish(self) -> Receipt:
        rows = self.sink.finish()
        sync_to_disk(self._path)
        note = WrittenFile(path=str(self._path), rows=rows, bytes=self._path.stat().st_size, span=self.sink.span)
        return Receipt(shard=self._shard, note=note)


def sync_to_disk(path: Path) -> None:
    """Wait until what was written to a file, or the names in a folder, would survive a crash."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
