"""Datasets in Spark's cache: a shard's rows as Arrow frames, held where the shard was run.

The table is that of the answer's parcels, which Spark keeps in the memory of its executors, and on their disks where
there is none left. What it loses with an executor it computes again, by itself. A plan that reads such a dataset is
given the frames of each shard on that shard: as parcels through the shuffle, as files where rows move over files.
"""

from __future__ import annotations

import io
import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import StorageLevel, TaskContext

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.exchange.codec import decode
from squill.plan.build.sources import cached_source
from squill.plan.dataset import Dataset
from squill.plan.node import Node
from squill.plan.nodes.tables import CachedSource
from squill.plan.serialise import dumps, loads
from squill.runtime.answer import Receipt
from squill.runtime.memory import note_of
from squill.runtime.runtime import Runtime
from squill.runtime.spark.jobs import as_often_as_rows_are_lost
from squill.runtime.spark.kinds import is_stopped
from squill.runtime.spark.parcel import ANSWER, DRIVER, ERROR, PARCEL_DDL, RECEIPT, parcel
from squill.runtime.spark.shuffle_task import ShuffleJob, frame_bytes, frame_parcel
from squill.runtime.spark.tables import read_names
from squill.runtime.stored_answer import WrittenFile

__all__ = ["CachedRows", "cached_files", "cached_parcels", "in_cache", "reports_of"]

FILES = "path string, shard int, rows bigint"
FILE_BYTES = 64 << 20
"""A file of a shard's rows has so many, or little more; they are in memory before they are written."""


class CachedRows:
    """A dataset of a session, as `in_cache` made it."""

    def __init__(self, session: Any, table: Any) -> None:
        self._session = session
        self._table = table

    def serves(self, runtime: Runtime) -> bool:
        return runtime.session is self._session and not is_stopped(self._session)

    def source(self, dataset: Dataset) -> Node:
        return cached_source(dataset, self._table)

    def frame(self, dataset: Dataset) -> pl.DataFrame:
        wanted = _pieces(self._table).select("kind", "sender", "number", "data")
        pieces = as_often_as_rows_are_lost(wanted.toArrow)
        ordered = pieces.sort_by([("sender", "ascending"), ("number", "ascending")])
        frames = [frame for _, _, frame in _frames(ordered.to_batches())]
        return pl.concat([pl.DataFrame(schema=dict(dataset.columns)), *frames], rechunk=False)

    def free(self) -> None:
        if not is_stopped(self._session):
            self._table.unpersist()


# -- written ----------------------------------------------------------------------------------------------------


def in_cache(parcels: Any, root: Node) -> Any:
    """Return the table of an answer's parcels, its rows as frames, of which Spark keeps what it has once made."""
    # Spark takes plans that are written alike for one, whatever their files hold by now: each answer is another one.
    keep = partial(_as_kept, uuid.uuid4().hex, dumps(root))
    return parcels.mapInArrow(keep, PARCEL_DDL).persist(StorageLevel.MEMORY_AND_DISK)


def reports_of(table: Any) -> Any:
    """Return what is for the driver: all but the rows. To ask for it fills the cache."""
    return table.where(f"kind <> {ANSWER}")


@dataclass
class _Noted:
    rows: int = 0
    bytes: int = 0
    span: tuple[int, int] | None = None

    def add(self, batch: Batch, frame: pl.DataFrame) -> None:
        note = note_of([batch], frame)
        self.rows += note.rows
        self.bytes += note.bytes
        if note.span is not None:
            low, high = self.span or note.span
            self.span = (min(low, note.span[0]), max(high, note.span[1]))

    def written(self) -> WrittenFile:
        return WrittenFile(path="", rows=self.rows, bytes=self.bytes, span=self.span)


def _as_kept(_: str, root_bytes: bytes, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of a task: frames for batches of the answer, a note of them for each receipt."""
    root: Node = loads(root_bytes)
    noted: dict[int, _Noted] = {}
    for record in records:
        for number, row in enumerate(record.select(["kind", "sender", "number", "data"]).to_pylist()):
            shard = row["sender"]
            if row["kind"] == ANSWER:
                batch = decode(pa.py_buffer(row["data"]), root.schema)
                frame = result_frame(batch, root)
                noted.setdefault(shard, _Noted()).add(batch, frame)
                place = {"wave": DRIVER, "target": 0, "place": 0, "sender": shard, "number": row["number"]}
                yield parcel(kind=ANSWER, data=_packed(frame), **place)
            elif row["kind"] == RECEIPT:
                receipt: Receipt = pickle.loads(row["data"])  # noqa: S301  (written by our own task)
                receipt = replace(receipt, note=noted.pop(shard, _Noted()).written())
                yield parcel(wave=DRIVER, target=0, kind=RECEIPT, place=0, sender=shard, data=pickle.dumps(receipt))
            else:
                yield record.slice(number, 1)


# -- read -------------------------------------------------------------------------------------------------------


def cached_parcels(source: CachedSource, job_bytes: bytes, fragment: int, leaf: int) -> Any:
    """Return the rows that a plan reads as parcels for their shards."""
    send = partial(_send, job_bytes, fragment, leaf, read_names(source))
    return _pieces(source.table).mapInArrow(send, PARCEL_DDL)


def _send(
    job_bytes: bytes, fragment: int, leaf: int, names: Sequence[str], records: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    job: ShuffleJob = loads(job_bytes)
    shards = len(job.splits[fragment, leaf])
    for shard, number, frame in _frames(records):
        yield frame_parcel(job, frame_bytes(frame.select(names)), fragment, leaf, shard % shards, number)


def cached_files(source: CachedSource, folder: Path) -> list[dict[str, Any]]:
    """Write the rows that a plan reads to files of one shard each; return their path, shard and rows."""
    write = partial(_write, str(folder), uuid.uuid4().hex, FILE_BYTES, read_names(source))
    lines = _pieces(source.table).mapInArrow(write, FILES).toArrow().to_pylist()
    return sorted(lines, key=lambda line: (int(line["shard"]), str(line["path"])))


@dataclass
class _Waiting:
    """Rows of one shard that are still to be written."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    bytes: int = 0
    files: int = 0
    """So many are written."""


class _Files:
    """Files of one attempt. Polars writes them, which knows all its types, and so each as a whole."""

    def __init__(self, folder: str, name: str, most_bytes: int) -> None:
        context = TaskContext.get()
        assert context is not None
        self._folder = Path(folder)
        self._most_bytes = most_bytes
        self._name = f"cache-{name}-a{context.taskAttemptId()}"
        self._waiting: dict[int, _Waiting] = {}

    def add(self, shard: int, frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Take rows; yield lines about what is written because of them."""
        waiting = self._waiting.setdefault(shard, _Waiting())
        waiting.frames.append(frame)
        waiting.bytes += int(frame.estimated_size())
        if waiting.bytes >= self._most_bytes:
            yield self._written(shard, waiting)

    def end(self) -> Iterator[pa.RecordBatch]:
        for shard, waiting in self._waiting.items():
            if waiting.frames:
                yield self._written(shard, waiting)

    def _written(self, shard: int, waiting: _Waiting) -> pa.RecordBatch:
        path = self._folder / f"{self._name}-s{shard}-{waiting.files:06}.arrow"
        rows = pl.concat(waiting.frames, rechunk=False)
        rows.write_ipc(path)
        waiting.frames, waiting.bytes, waiting.files = [], 0, waiting.files + 1
        line = {
            "path": [str(path)],
            "shard": pa.array([shard], pa.int32()),
            "rows": pa.array([rows.height], pa.int64()),
        }
        return pa.RecordBatch.from_pydict(line)


def _write(
    folder: str, name: str, most_bytes: int, names: Sequence[str], records: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    files = _Files(folder, name, most_bytes)
    for shard, _, frame in _frames(records):
        yield from files.add(shard, frame.select(names))
    yield from files.end()


def _pieces(table: Any) -> Any:
    """Return the rows, and errors: a shard that was lost may have failed when it was computed again."""
    return table.where(f"kind in ({ANSWER}, {ERROR})")


def _frames(records: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pl.DataFrame]]:
    for record in records:
        for row in record.select(["kind", "sender", "number", "data"]).to_pylist():
            if row["kind"] == ERROR:
                raise pickle.loads(row["data"])  # noqa: S301  (written by our own task)
            yield row["sender"], row["number"], _frame(row["data"])


def _packed(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_ipc(content)
    return content.getvalue()


def _frame(content: bytes) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(content))
