"""Rows that moved, kept in files, so that a query that is run again need not read and order its inputs again.

Kept are the channels of fragments that read one input and hold nothing back: what they send are rows of the input, the
same in every attempt. (What later fragments send are answers, of which a sum of floats may come out otherwise when
it is computed again; so it is computed again from the kept rows on.) Every attempt of a shard has a file of its own. It
is added to as rows are sent, and holds how far they are all there; what is beyond is read from the input again.

A file is a row of records, each of which begins at a multiple of 64 bytes::

    magic, kind, channel, time, bytes, checksum, n, n receivers     as int64, filled up to 64 bytes
    an encoded batch                                                filled up to 64 bytes

A record that is not whole is the end: its worker was killed while it wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from squill.engine.batch import Batch
from squill.engine.run import waits_for_time
from squill.exchange.checksum import checksum
from squill.exchange.codec import Piece, decode, encoded_pieces
from squill.exchange.scatter import Outbox
from squill.exchange.segments import ALIGNMENT
from squill.plan.fragments import ShardedPlan
from squill.plan.schema import Schema
from squill.runtime.shard import BatchInbox
from squill.runtime.spark.pipes.replay import raised
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Kept", "KeptInbox", "KeptLog", "kept_fragments", "kept_of"]

MAGIC = 0x53515049504531
BEGUN, ROWS, CLOCK = range(3)
FIXED = 7


def kept_fragments(plan: ShardedPlan) -> frozenset[int]:
    """Return the fragments whose channels are kept."""
    return frozenset(
        fragment.number
        for fragment in plan.fragments
        if fragment.outputs and fragment.inputs == (None,) and not waits_for_time(fragment.root)
    )


class KeptLog:
    """What one attempt of a shard sends from time `begun` on. As a context it closes its file."""

    def __init__(self, path: Path, channels: Iterable[int], begun: int) -> None:
        # Without a buffer: what was written stays when the worker is killed.
        self._file = path.open("xb", buffering=0)
        self._clocks = dict.fromkeys(channels, begun)
        self._told = begun
        self._write(BEGUN, 0, begun)

    def outbox(self, channel: int, inner: Outbox) -> Outbox:
        """Return an outbox that keeps what it sends."""
        return _KeptOutbox(self, channel, inner)

    def close(self) -> None:
        self._file.close()

    def add(self, channel: int, receivers: Sequence[int], batch: Batch) -> None:
        self._write(ROWS, channel, int(batch.sync[0]), encoded_pieces(batch), receivers)

    def tell(self, channel: int, t: int) -> None:
        """Let rows of a channel be there up to a time."""
        self._clocks[channel] = max(self._clocks[channel], t)
        if (reached := min(self._clocks.values())) > self._told:
            self._told = reached
            self._write(CLOCK, 0, reached)

    def _write(
        self, kind: int, channel: int, time: int, pieces: Sequence[Piece] = (), receivers: Sequence[int] = ()
    ) -> None:
        size, check = sum(map(len, pieces)), checksum(pieces) if pieces else 0
        header = np.array([MAGIC, kind, channel, time, size, check, len(receivers), *receivers], np.int64).tobytes()
        self._put([header])
        self._put(pieces)

    def _put(self, pieces: Sequence[Piece]) -> None:
        padding = bytes(-sum(map(len, pieces)) % ALIGNMENT)
        for piece in (*pieces, padding):
            part = memoryview(piece)
            while part:
                part = part[self._file.write(part) :]


class _KeptOutbox:
    def __init__(self, log: KeptLog, channel: int, inner: Outbox) -> None:
        self._log = log
        self._channel = channel
        self._inner = inner

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        self._log.add(self._channel, receivers, batch)
        return self._inner.send(receivers, batch)

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        self._inner.tell(clocks)
        self._log.tell(self._channel, min((t for _, t in clocks), default=INFINITY))


@dataclass(frozen=True)
class _Record:
    """A batch; `until` is up to where its rows count: those beyond are read, and sent, by the next attempt."""

    channel: int
    first: int
    receivers: tuple[int, ...]
    data: pa.Buffer
    until: int = INFINITY


@dataclass(frozen=True)
class Kept:
    """What earlier attempts of a shard have sent: all rows below `reached`."""

    records: Sequence[_Record] = ()
    reached: int = MINUS_INFINITY

    def rows(
        self, schemas: Mapping[int, Schema], since: int, *, brief: bool
    ) -> Iterator[tuple[int, Sequence[int], Batch]]:
        """Yield channel, receivers and rows in the order of time, as they are at `since` and later."""
        for record in sorted(self.records, key=lambda record: record.first):
            batch = decode(record.data, schemas[record.channel])
            batch = batch.slice(0, int(np.searchsorted(batch.sync, record.until)))
            for alive in raised([batch], since, brief=brief):
                if len(alive):
                    yield record.channel, record.receivers, alive


def kept_of(paths: Sequence[Path]) -> Kept:
    """Return what the files of earlier attempts hold, in their order; one that began at the beginning begins anew."""
    found = Kept()
    for path in paths:
        if not path.exists():
            continue  # the attempt was over before this shard had begun
        begun, records, reached = _read(path)
        if begun is None:
            continue
        before = () if begun == MINUS_INFINITY else found.records
        until = max(begun, reached)
        whole = [replace(record, until=until) for record in records if record.first < until]
        found = Kept((*before, *whole), until)
    return found


def _read(path: Path) -> tuple[int | None, list[_Record], int]:
    """Return from where on a file holds rows, None where it does not say, the rows, and up to where they are all."""
    begun: int | None = None
    reached = MINUS_INFINITY
    records: list[_Record] = []
    with pa.memory_map(str(path)) as mapped:
        content = mapped.read_buffer() if mapped.size() else pa.py_buffer(b"")
    for kind, record in _records(content):
        if kind == BEGUN:
            begun = record.first
        elif kind == CLOCK:
            reached = record.first
        else:
            records.append(record)
    return begun, records, reached


def _records(content: pa.Buffer) -> Iterator[tuple[int, _Record]]:
    at = 0
    while at + ALIGNMENT <= content.size:
        magic, kind, channel, first, size, check, count = _numbers(content, at, FIXED)
        begin = at + _filled(8 * (FIXED + count)) if magic == MAGIC else content.size
        if begin > content.size or begin + size > content.size:
            return
        data = content.slice(begin, size)
        if size and checksum([data]) != check:
            return
        receivers = tuple(_numbers(content, at + 8 * FIXED, count))
        yield kind, _Record(channel, first, receivers, data)
        at = begin + _filled(size)


def _numbers(content: pa.Buffer, at: int, count: int) -> list[int]:
    numbers: list[int] = np.frombuffer(content, np.int64, count, at).tolist()
    return numbers


def _filled(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class KeptInbox(BatchInbox):
    """Sends what was kept, then reads on from where it ends."""

    def __init__(
        self,
        kept: Kept,
        schemas: Mapping[int, Schema],
        outboxes: Mapping[int, Outbox],
        since: int,
        batches: Iterable[Batch],
        *,
        brief: bool,
    ) -> None:
        super().__init__(raised(_from(batches, kept.reached), since, brief=brief))
        self._rows = kept.rows(schemas, since, brief=brief)
        self._outboxes = outboxes
        self._next: tuple[int, Sequence[int], Batch] | None = None

    def take(self) -> list[Batch]:
        if self._next is not None:
            channel, receivers, batch = self._next
            self._next = None
            self._outboxes[channel].send(receivers, batch)
        for row in self._rows:
            # First all receivers are told the time of what comes next; then it may wait for room.
            self._next = row
            self.clock = int(row[2].sync[0])
            return []
        return super().take()


def _from(batches: Iterable[Batch], time: int) -> Iterator[Batch]:
    for batch in batches:
        yield batch.slice(int(np.searchsorted(batch.sync, time)), len(batch))
