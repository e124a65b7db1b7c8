"""Bounded channels between the shards of one process, which cannot stand still.

A *mailbox* holds what one receiver is sent over one channel: per producer a queue of batches, and the producer's
clock. A receiver takes rows up to the least clock of its producers, in sync order. A producer blocks when a
receiver already holds enough of its rows.

Clocks take no room and are told to all receivers before a producer may block. That alone keeps an exchange of one
movement going. A plan in which a stream reaches a node on two ways of different delay can still come to a point
where everybody waits: one way is full of rows that nobody may take before the other brings the time. This is
seen, because who waits for what is known in one place, and resolved by giving the queues more room: never more
than such a plan needs, and never for the others. Where rows come from other processes too, a flow only says that all
wait here, and whoever sees all processes decides.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from squill.engine.batch import Batch
from squill.errors import InternalError
from squill.exchange.merge import merge_runs, worth_pushing
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Flow", "Halted", "Mailbox", "MailboxReader", "MailboxWriter", "Urgency"]


Urgency = Callable[[], tuple[int, int]]
"""How much a task's work matters now: less is more urgent. It changes only while the task computes."""


def _as_they_come() -> tuple[int, int]:
    return (0, 0)


class Halted(Exception):  # noqa: N818  (nothing went wrong here)
    """The flow was stopped: whoever waited in it ends without a result."""


class Flow:
    """What the tasks of one run share: the lock, who waits for what, and the right to compute.

    ``tasks``     how many will take part; each calls `begin` and `end` on its own thread.
    ``cores``     how many compute at once; who waits does not count.
    ``room``      how many rows of one producer a mailbox holds before the producer waits.
    ``turn``      for how many seconds a task that was given the right to compute need not give way to others.
    """

    def __init__(
        self, *, tasks: int, cores: int, room: int, turn: float = 0.0, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self.room = room
        self._turn = turn
        self._now = now
        self._turn_ends: dict[int, float] = {}
        self._lock = threading.RLock()
        self._waiting: dict[int, _Waiter] = {}
        self._live = tasks
        self._permits = _Permits(cores)
        self._urgencies: dict[int, Urgency] = {}
        self._is_halted = False
        self._failure: InternalError | None = None
        self.on_standstill: Callable[[], object] | None = None
        """Where rows come from outside too: called, with the lock in hand, when all tasks here wait or are over."""

    def begin(self, urgency: Urgency | None = None) -> None:
        """Wait for the right to compute; the most urgent get it first."""
        self._urgencies[threading.get_ident()] = urgency or _as_they_come
        self._acquire()

    def _acquire(self) -> None:
        me = threading.get_ident()
        self._permits.acquire(self._urgencies[me]())
        self._turn_ends[me] = self._now() + self._turn

    def give_way(self) -> None:
        """Let those compute first who are more urgent by now, if any want to and this task has had its turn."""
        me = threading.get_ident()
        if self._now() >= self._turn_ends[me] and self._permits.is_wanted_before(self._urgencies[me]()):
            self._permits.release()
            self._acquire()

    def end(self) -> None:
        """Give the right back; this task is over."""
        self._permits.release()
        with self._lock:
            self._live -= 1
            self._resolve()
            self._wake()

    def halt(self) -> None:
        """Let everybody who waits, now or later, end."""
        with self._lock:
            self._is_halted = True
            self._wake()

    def change(self, act: Callable[[], object]) -> None:
        """Do something that others may wait for."""
        with self._lock:
            act()
            self._wake()

    def _wake(self) -> None:
        """Wake who has what it waits for, and nobody else: most changes are no news to most of those who wait."""
        for waiter in self._waiting.values():
            if self._is_halted or waiter.ready():
                waiter.woken.notify()

    def change_from_outside(self, act: Callable[[], object]) -> None:
        """Do something that others may wait for, on a thread that is no task."""
        with self._lock:
            act()
            self._resolve()
            self._wake()

    def make_room(self, room: int) -> None:
        """Let mailboxes hold so many rows of a producer, if that is more than now."""
        with self._lock:
            self.room = max(self.room, room)
            self._resolve()
            self._wake()

    @property
    def stands_still(self) -> bool:
        """Whether all tasks wait, and none of them for what is there; the caller has the lock, as in `change`."""
        if self._is_halted or len(self._waiting) < self._live:
            return False
        return not any(waiter.ready() for waiter in self._waiting.values())

    @property
    def is_over(self) -> bool:
        """Whether all tasks have ended."""
        return not self._live

    @property
    def wants_room(self) -> bool:
        """Whether somebody waits for room; the caller has the lock."""
        return any(waiter.for_room for waiter in self._waiting.values())

    def wait_until(self, ready: Callable[[], bool], *, for_room: bool = False) -> None:
        """Wait; once true, `ready` must stay true until this task acts. `for_room`: more room may make it true."""
        with self._lock:
            if self._is_halted:
                raise Halted
            if ready():
                return
            me = threading.get_ident()
            waiter = self._waiting[me] = _Waiter(ready, for_room, threading.Condition(self._lock))
            self._permits.release()
            try:
                self._resolve()
                while not (ready() or self._is_halted):
                    waiter.woken.wait()
            finally:
                del self._waiting[me]
        # Not with the lock in hand: those who compute need it before they give up the right to.
        self._acquire()
        if self._failure is not None:
            raise self._failure
        if self._is_halted:
            raise Halted

    def _resolve(self) -> None:
        """Where everybody waits and nobody can go on, make room, or say so."""
        if self._is_halted or len(self._waiting) < self._live:
            return
        if self.on_standstill is not None:
            if self.stands_still:
                self.on_standstill()
            return
        if not self._live:
            return
        while self.stands_still:
            if not self.wants_room:
                self._failure = InternalError("every shard waits for rows that nobody is going to send")
                self._is_halted = True
                break
            self.room *= 2
        self._wake()


class _Waiter(NamedTuple):
    """What a task waits for, whether more room may bring it, and how it is woken."""

    ready: Callable[[], bool]
    for_room: bool
    woken: threading.Condition


class _Permits:
    """The right to compute, for so many at once; among those who wait the most urgent is next, then who came first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.RLock()
        self._waiting: list[tuple[tuple[int, int], int, threading.Condition]] = []
        self._came = 0

    def acquire(self, urgency: tuple[int, int]) -> None:
        with self._lock:
            self._came += 1
            me = (urgency, self._came, threading.Condition(self._lock))
            heapq.heappush(self._waiting, me)
            while not self._free or self._waiting[0] is not me:
                me[2].wait()
            heapq.heappop(self._waiting)
            self._free -= 1
            self._wake_next()

    def release(self) -> None:
        with self._lock:
            self._free += 1
            self._wake_next()

    def _wake_next(self) -> None:
        if self._free and self._waiting:
            self._waiting[0][2].notify()

    def is_wanted_before(self, urgency: tuple[int, int]) -> bool:
        with self._lock:
            return bool(self._waiting) and self._waiting[0][0] < urgency


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

        self.flow.wait_until(lambda: self.rows[producer] < self.flow.room, for_room=True)
        self.flow.change(leave)

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
            due = mailbox.due
            return any(queue and queue[0].first_sync <= due for queue in mailbox.queues.values())

        mailbox.flow.wait_until(ready)
        runs: list[list[Batch]] = []
        mailbox.flow.change(lambda: runs.extend(self._due()))
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
