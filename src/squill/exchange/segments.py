"""Arrow files that carry batches from producers to receivers.

A producer writes one file: batches for all receivers of all its channels, one after the other as they come, each a
*segment*; what several receivers get is written once. The segments' places are kept by channel and receiver and
become part of the manifest: a file by itself says nothing, so what an
attempt that was not accepted has written is never read. While it is written the file ends in ``.part``. A
receiver maps the file and decodes its segments where they lie, after comparing their checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from squill.engine.batch import Batch
from squill.errors import InternalError
from squill.exchange.checksum import checksum
from squill.exchange.codec import decode, encoded_pieces
from squill.exchange.reservation import Reservation
from squill.plan.schema import Schema

__all__ = ["MANIFEST", "Run", "SegmentWriter", "read_run", "runs_for"]

ALIGNMENT = 64
"""Segments begin at multiples of this many bytes, so that mapped columns are aligned."""

MANIFEST = pa.schema(
    [
        ("fragment", pa.int32()),
        ("shard", pa.int32()),
        ("attempt", pa.int64()),
        ("channel", pa.int32()),
        ("receiver", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("min_sync", pa.int64()),
        ("max_sync", pa.int64()),
        ("segments", pa.binary()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one attempt of one producer has for one receiver of a channel: a line of the manifest.

    `segments` holds (offset, length, checksum) as int64 for each batch, in sync order.
    """

    fragment: int
    shard: int
    attempt: int
    channel: int
    receiver: int
    path: str
    rows: int
    min_sync: int
    max_sync: int
    segments: bytes


def runs_for(channel: int, receiver: int, manifest: pa.Table) -> list[Run]:
    """Return what the receiver is sent over a channel according to the manifest, in the order of the producers."""
    # On arrays: Arrow's filter of tables by an expression starts a query, which takes milliseconds.
    mine = pc.and_(pc.equal(manifest.column("channel"), channel), pc.equal(manifest.column("receiver"), receiver))
    lines = manifest.select(MANIFEST.names).filter(mine)
    return [Run(**line) for line in lines.sort_by("shard").to_pylist()]


class SegmentWriter:
    """Writes one producer's file. As a context: left by an error, it leaves no file."""

    def __init__(self, path: Path, *, fragment: int, shard: int, attempt: int, compression: str | None = None) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._identity = {"fragment": fragment, "shard": shard, "attempt": attempt}
        self._compression = compression
        self._file: BinaryIO | None = None
        self._room: Reservation | None = None
        self._offset = 0
        self._segments: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._bounds: dict[tuple[int, int], tuple[int, int, int]] = {}

    def __enter__(self) -> Self:
        self._file = self._part.open("xb")
        self._room = Reservation(self._file.fileno())
        return self

    def outbox(self, channel: int) -> FileOutbox:
        """Return the outbox of a channel."""
        return FileOutbox(self, channel)

    def send(self, channel: int, receivers: Sequence[int], batch: Batch) -> int:
        """Add a batch; per receiver they come in sync order. Return how many bytes it is."""
        assert self._file is not None
        assert self._room is not None
        pieces = encoded_pieces(batch, self._compression)
        size = sum(map(len, pieces))
        self._room.expect(self._offset + size)
        self._file.writelines(pieces)
        segment = (self._offset, size, checksum(pieces))
        for receiver in receivers:
            place = (channel, receiver)
            self._segments.setdefault(place, []).append(segment)
            rows, first, _ = self._bounds.get(place, (0, int(batch.sync[0]), 0))
            self._bounds[place] = (rows + len(batch), first, int(batch.sync[-1]))
        padding = -size % ALIGNMENT
        self._file.write(bytes(padding))
        self._offset += size + padding
        return size

    def runs(self) -> list[Run]:
        """Return the manifest lines of what was written, in the order of the channels and receivers."""
        return [self._run(*place) for place in sorted(self._segments)]

    def _run(self, channel: int, receiver: int) -> Run:
        rows, first, last = self._bounds[channel, receiver]
        segments = np.array(self._segments[channel, receiver], np.int64).tobytes()
        return Run(
            **self._identity,
            channel=channel,
            receiver=receiver,
            path=str(self._path),
            rows=rows,
            min_sync=first,
            max_sync=last,
            segments=segments,
        )

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        assert self._file is not None
        assert self._room is not None
        is_whole = False
        try:
            with self._file:
                if kind is None:
                    self._file.flush()
                    self._room.end(self._offset)
            if kind is None:
                self._part.rename(self._path)
                is_whole = True
        finally:
            if not is_whole:
                self._part.unlink(missing_ok=True)


class FileOutbox:
    """One channel's share of a producer's file."""

    def __init__(self, writer: SegmentWriter, channel: int) -> None:
        self._writer = writer
        self._channel = channel

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        return self._writer.send(self._channel, receivers, batch)

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        """Nobody reads the file before it is whole."""


def read_run(run: Run, schema: Schema) -> Iterator[Batch]:
    """Yield a run's batches; numbers in them are views of the mapped file, which may be deleted meanwhile."""
    with pa.memory_map(run.path) as mapped:
        content = mapped.read_buffer()
        for offset, length, expected in np.frombuffer(run.segments, np.int64).reshape(-1, 3).tolist():
            data = content.slice(min(offset, content.size), min(length, max(content.size - offset, 0)))
            if data.size != length or checksum([data]) != expected:
                raise InternalError(f"{run.path}: the segment at {offset} is not what fragment {run.fragment} wrote")
            yield decode(data, schema)
