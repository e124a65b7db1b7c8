"""The two ends of a channel whose senders and receivers are in several tasks.

A *lane* is one sender's rows for one receiver, for one fragment that reads them there. Who sends counts the rows that
the reader has not taken, and waits when they are enough, as it would for a mailbox of its own process; so a receiver
takes everything from the network at once, and no lane ever waits behind another. All waiting is in the flow, where
it is seen when nobody can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa

from squill.engine.batch import Batch
from squill.exchange.codec import decode, encode
from squill.exchange.flow import Flow
from squill.exchange.mailbox import Mailbox, MailboxReader
from squill.plan.schema import Schema
from squill.runtime.spark.pipes import wire
from squill.runtime.spark.pipes.link import CLOCK, TAKEN, Link, Mark, read_header, read_marks

__all__ = ["Inward", "LaneReader", "Outward", "pieces"]

Lane = tuple[int, int, int, int]
"""Channel, sender, receiver, and the fragment that reads."""


def pieces(batch: Batch) -> Iterator[pa.Buffer]:
    """Yield the rows as bytes that can be sent: cut in halves until they are small enough."""
    data = encode(batch)
    if data.size <= wire.MOST_BYTES:
        yield data
        return
    if len(batch) == 1:
        wire.refuse_large(data.size, f"a row of {', '.join(batch.columns)}")
    half = len(batch) // 2
    yield from pieces(batch.slice(0, half))
    yield from pieces(batch.slice(half, len(batch)))


@dataclass
class Inward:
    """What comes to the shards of this task.

    ``boxes``     by channel and receiver the mailboxes, by the fragment that reads.
    ``schemas``   by channel what its rows are.
    ``links``     the ways to other tasks.
    ``received``  by task, up to which put of its link everything has come.
    """

    flow: Flow
    boxes: Mapping[tuple[int, int], Mapping[int, Mailbox]]
    schemas: Mapping[int, Schema]
    links: Mapping[int, Link]
    received: dict[int, int] = field(default_factory=dict)
    arrived: dict[Lane, int] = field(default_factory=dict)
    sent: dict[Lane, int] = field(default_factory=dict)
    taken: dict[Lane, int] = field(default_factory=dict)

    def take(self, task: int, data: pa.Buffer | None, header: pa.Buffer | None) -> None:
        """Take a message of another task's link; never waits."""
        assert header is not None
        if data is None:
            put, marks = read_marks(header)
            self.flow.change_from_outside(lambda: self._mark(task, put, marks))
            return
        channel, sender, receivers = read_header(header)
        batch = decode(data, self.schemas[channel])
        self.flow.change_from_outside(lambda: self._add(channel, sender, receivers, batch))

    def _add(self, channel: int, sender: int, receivers: Sequence[int], batch: Batch) -> None:
        for receiver in receivers:
            for reader, mailbox in self.boxes[channel, receiver].items():
                mailbox.leave(sender, batch)
                lane = (channel, sender, receiver, reader)
                self.arrived[lane] = self.arrived.get(lane, 0) + len(batch)

    def _mark(self, task: int, put: int, marks: Sequence[tuple[Mark, int]]) -> None:
        for mark, value in marks:
            if mark.kind == CLOCK:
                for mailbox in self.boxes[mark.channel, mark.receiver].values():
                    mailbox.tell(mark.sender, value)
            else:
                lane = (mark.channel, mark.sender, mark.receiver, mark.reader)
                self.taken[lane] = max(value, self.taken.get(lane, 0))
        self.received[task] = put

    def has_room(self, lanes: Sequence[Lane]) -> bool:
        """Whether readers elsewhere have taken enough; asked with the flow's lock."""
        return all(self.sent.get(lane, 0) - self.taken.get(lane, 0) < self.flow.room for lane in lanes)

    def count_sent(self, lanes: Sequence[Lane], rows: int) -> None:
        for lane in lanes:
            self.sent[lane] = self.sent.get(lane, 0) + rows


class LaneReader(MailboxReader):
    """A shard's end of a channel: tells senders elsewhere what it has taken.

    ``task_of``  the task of a sender.
    """

    def __init__(
        self, inward: Inward, mailbox: Mailbox, channel: int, receiver: int, reader: int, task_of: Mapping[int, int]
    ) -> None:
        super().__init__(mailbox)
        self._inward = inward
        self._place = (channel, receiver, reader)
        self._away = {sender: task for sender, task in task_of.items() if task in inward.links}
        self._told: dict[int, int] = {}
        self._box = mailbox

    def take(self) -> list[Batch]:
        rows = super().take()
        fresh: list[tuple[int, int]] = []
        if self._away:
            self._inward.flow.change(lambda: fresh.extend(self._untold()))
        channel, receiver, reader = self._place
        for task, group in groupby(fresh, key=lambda item: self._away[item[0]]):
            self._inward.links[task].mark(
                [(Mark(TAKEN, channel, sender, receiver, reader), value) for sender, value in group]
            )
        return rows

    def _untold(self) -> Iterator[tuple[int, int]]:
        channel, receiver, reader = self._place
        for sender in self._away:
            arrived = self._inward.arrived.get((channel, sender, receiver, reader), 0)
            taken = arrived - self._box.rows[sender]
            if taken > self._told.get(sender, 0):
                self._told[sender] = taken
                yield sender, taken


class Outward:
    """One sender's end of a channel: an outbox.

    ``readers``   the fragments that read the channel, and by task their receivers that are there.
    ``on_batch``  is given what is sent, before it is.
    """

    def __init__(
        self,
        inward: Inward,
        channel: int,
        sender: int,
        *,
        readers: Sequence[int],
        task_of: Callable[[int], int],
    ) -> None:
        self._inward = inward
        self._flow = inward.flow
        self._channel = channel
        self._sender = sender
        self._readers = readers
        self._task_of = task_of

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        sent = 0
        away: dict[int, list[int]] = {}
        for receiver in receivers:
            task = self._task_of(receiver)
            if task in self._inward.links:
                away.setdefault(task, []).append(receiver)
            else:
                for mailbox in self._inward.boxes[self._channel, receiver].values():
                    mailbox.post(self._sender, batch)
        data = list(pieces(batch)) if away else []
        for task, theirs in away.items():
            lanes = [(self._channel, self._sender, receiver, reader) for receiver in theirs for reader in self._readers]
            self._flow.wait_until(lambda lanes=lanes: self._inward.has_room(lanes), for_room=True)  # type: ignore[misc]
            self._flow.change(lambda lanes=lanes: self._inward.count_sent(lanes, len(batch)))  # type: ignore[misc]
            for piece in data:
                self._inward.links[task].send(self._channel, self._sender, theirs, piece)
                sent += int(piece.size)
        return sent

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        here: list[tuple[int, int]] = []
        away: dict[int, list[tuple[Mark, int]]] = {}
        for receivers, t in clocks:
            for receiver in receivers:
                task = self._task_of(receiver)
                if task in self._inward.links:
                    away.setdefault(task, []).append((Mark(CLOCK, self._channel, self._sender, receiver), t))
                else:
                    here.append((receiver, t))
        for task, marks in away.items():
            self._inward.links[task].mark(marks)

        def tell() -> None:
            for receiver, t in here:
                for mailbox in self._inward.boxes[self._channel, receiver].values():
                    mailbox.tell(self._sender, t)

        self._flow.change(tell)
