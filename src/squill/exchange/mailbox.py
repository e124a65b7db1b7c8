"""What the receivers of one process are sent: mailboxes, and the two ends of a channel made of them.

A *mailbox* holds what one receiver is sent over one channel: per producer a queue of batches, and the producer's
clock. A receiver takes rows up to the least clock of its producers, in sync order. A producer waits when a receiver
already holds enough of its rows (see `flow`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from squill.engine.batch import Batch
from squill.exchange.flow import Flow
from squill.exchange.merge import merge_runs, worth_pushing
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Mailbox", "MailboxReader", "MailboxWriter"]


class Mailbox:
    """What one receiver is sent over one channel.

    ``whole_instants``  rows of an instant are to be taken at once, when all are there, unless they are more than there
                        is room for: where few rows come at each, taking them costs more than they do.
    """

    def __init__(self, flow: Flow, producers: Sequence[int], *, whole_instants: bool = False) -> None:
        self.flow = flow
        self.whole_instants = whole_instants
        self.queues: dict[int, deque[Batch]] = {producer: deque() for producer in producers}
        self.rows = dict.fromkeys(producers, 0)
        self._clocks = dict.fromkeys(producers, MINUS_INFINITY)
        # Both are asked for at every change in the flow, by all who wait: not to be found out each time.
        self._clock: int | None = None
        self._first: int | None = None  # the time of the earliest row that is here

    def post(self, producer: int, batch: Batch) -> None:
        """Leave rows; waits while the mailbox holds enough of this producer's."""
        self.flow.wait_until(lambda: self.has_room(producer), for_room=True)
        self.flow.change(lambda: self.leave(producer, batch))

    def leave(self, producer: int, batch: Batch) -> None:
        """Leave rows, at least one, whether there is room or not; the caller has the flow's lock."""
        # A producer's rows come in order: only the first batch of a queue can be the earliest.
        if not self.queues[producer]:
            first = batch.first_sync
            self._first = first if self._first is None else min(self._first, first)
        self.queues[producer].append(batch)
        self.rows[producer] += len(batch)

    def has_room(self, producer: int) -> bool:
        """Whether the producer, if it is one of this mailbox's, may leave rows; the caller has the flow's lock."""
        return self.rows.get(producer, 0) < self.flow.room

    def tell(self, producer: int, t: int) -> None:
        """Take a producer's clock; the caller has the flow's lock."""
        before = self._clocks[producer]
        if t > before:
            self._clocks[producer] = t
            if before == self._clock:  # else another one is behind
                self._clock = None

    @property
    def clock(self) -> int:
        """No row below it will follow; the caller has the flow's lock."""
        if self._clock is None:
            self._clock = min(self._clocks.values(), default=INFINITY)
        return self._clock

    @property
    def due(self) -> int:
        """Up to where rows may leave; the caller has the flow's lock.

        Those at the clock itself may: what follows is not earlier, and order within an instant is free.
        """
        clock = self.clock
        if not self.whole_instants or clock == INFINITY or any(rows >= self.flow.room for rows in self.rows.values()):
            return clock
        return max(clock - 1, MINUS_INFINITY)

    @property
    def has_due(self) -> bool:
        """Whether rows may leave; the caller has the flow's lock."""
        return self._first is not None and self._first <= self.due

    def take_due(self) -> list[list[Batch]]:
        """Take the rows that may leave, by producer; the caller has the flow's lock."""
        due = self.due
        runs = [run for producer in self.queues if (run := self._taken(producer, due))]
        self._first = min((queue[0].first_sync for queue in self.queues.values() if queue), default=None)
        return runs

    def _taken(self, producer: int, due: int) -> list[Batch]:
        queue = self.queues[producer]
        run: list[Batch] = []
        while queue and queue[0].first_sync <= due:
            batch = queue.popleft()
            size = batch.rows_until(due)
            run.append(batch.slice(0, size))
            self.rows[producer] -= size
            if size < len(batch):
                queue.appendleft(batch.slice(size, len(batch)))
                break
        return run


class MailboxWriter:
    """One producer's end of a channel: an outbox. `mailboxes` are by receiver."""

    def __init__(self, flow: Flow, producer: int, mailboxes: Mapping[int, Sequence[Mailbox]]) -> None:
        self._flow = flow
        self._producer = producer
        self._mailboxes = mailboxes

    def send(self, receivers: Sequence[int], batch: Batch) -> int:
        for receiver in receivers:
            for mailbox in self._mailboxes[receiver]:
                mailbox.post(self._producer, batch)
        return 0  # by reference

    def has_room(self) -> bool:
        """Whether no receiver would keep this producer waiting; the caller has the flow's lock."""
        return all(box.has_room(self._producer) for boxes in self._mailboxes.values() for box in boxes)

    def tell(self, clocks: Sequence[tuple[Sequence[int], int]]) -> None:
        def tell() -> None:
            for receivers, t in clocks:
                for receiver in receivers:
                    for mailbox in self._mailboxes[receiver]:
                        mailbox.tell(self._producer, t)

        self._flow.change(tell)


class MailboxReader:
    """The receiver's end: rows of all producers in sync order, as far as time has come."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._clock = MINUS_INFINITY

    @property
    def clock(self) -> int:
        """What has been taken up to: no row below it will follow."""
        return self._clock

    def take(self) -> list[Batch]:
        """Wait until time moves on or rows may leave; return these, and move the clock."""
        mailbox = self._mailbox

        mailbox.flow.wait_until(lambda: mailbox.clock > self._clock or mailbox.has_due)
        runs: list[list[Batch]] = []

        def take() -> None:
            self._clock = mailbox.clock
            runs.extend(mailbox.take_due())

        mailbox.flow.change(take, makes_room=True)
        return list(worth_pushing(merge_runs(runs)))
