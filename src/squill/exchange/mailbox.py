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
        self.clocks = dict.fromkeys(producers, MINUS_INFINITY)

    def post(self, producer: int, batch: Batch) -> None:
        """Leave rows; waits while the mailbox holds enough of this producer's."""

        def leave() -> None:
            self.queues[producer].append(batch)
            self.rows[producer] += len(batch)

        self.flow.wait_until(lambda: self.has_room(producer), for_room=True)
        self.flow.change(leave)

    def has_room(self, producer: int) -> bool:
        """Whether the producer, if it is one of this mailbox's, may leave rows; the caller has the flow's lock."""
        return self.rows.get(producer, 0) < self.flow.room

    def tell(self, producer: int, t: int) -> None:
        """Take a producer's clock; the caller has the flow's lock."""
        self.clocks[producer] = max(self.clocks[producer], t)

    @property
    def clock(self) -> int:
        """No row below it will follow."""
        return min(self.clocks.values(), default=INFINITY)

    @property
    def due(self) -> int:
        """Up to where rows may leave.

        Those at the clock itself may: what follows is not earlier, and order within an instant is free.
        """
        clock = self.clock
        if not self.whole_instants or clock == INFINITY or any(rows >= self.flow.room for rows in self.rows.values()):
            return clock
        return max(clock - 1, MINUS_INFINITY)


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

        def ready() -> bool:
            if mailbox.clock > self._clock:
                return True
            if not any(mailbox.rows.values()):
                return False
            due = mailbox.due
            return any(queue and queue[0].first_sync <= due for queue in mailbox.queues.values())

        mailbox.flow.wait_until(ready)
        runs: list[list[Batch]] = []
        mailbox.flow.change(lambda: runs.extend(self._due()), makes_room=True)
        return list(worth_pushing(merge_runs(runs)))

    def _due(self) -> list[list[Batch]]:
        mailbox = self._mailbox
        self._clock, due = mailbox.clock, mailbox.due
        runs: list[list[Batch]] = []
        for producer, queue in mailbox.queues.items():
            run: list[Batch] = []
            while queue and queue[0].first_sync <= due:
                batch = queue.popleft()
                size = batch.rows_until(due)
                run.append(batch.slice(0, size))
                mailbox.rows[producer] -= size
                if size < len(batch):
                    queue.appendleft(batch.slice(size, len(batch)))
                    break
            if run:
                runs.append(run)
        return runs
