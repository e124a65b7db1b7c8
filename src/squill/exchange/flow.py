"""Who may compute, and who waits for whom, among the tasks of one process: an exchange that cannot stand still.

Tasks exchange rows through bounded mailboxes (see `mailbox`). Clocks take no room and are told to all receivers before
a producer may wait. That alone keeps an exchange of one movement going. A plan in which a stream reaches a node on two
ways of different delay can still come to a point where everybody waits: one way is full of rows that nobody may take
before the other brings the time. This is seen, because who waits for what is known in one place, and resolved by
giving the queues more room: never more than such a plan needs, and never for the others. Where rows come from other
processes too, a flow only says that all wait here, and whoever sees all processes decides.

What only brings rows needs no thread of its own: it is an *errand*, and who waits for rows does a step of it instead,
unless others have work for its core: what has moved is worked on before more is brought.
A thread that hands over to another one is woken where the system likes, often on the core that is busy while the other
one is free: two threads that summed 10 M rows stood still for a tenth of their time.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from squill.errors import InternalError

__all__ = ["Errand", "Flow", "Halted", "Urgency"]


Urgency = Callable[[], tuple[int, int]]
"""How much a task's work matters now: less is more urgent. It changes only while the task computes."""


def _as_they_come() -> tuple[int, int]:
    return (0, 0)


class Halted(Exception):  # noqa: N818  (nothing went wrong here)
    """The flow was stopped: whoever waited in it ends without a result."""


class Errand(Protocol):
    """Work without a thread of its own, done step by step by whoever has nothing better to do."""

    @property
    def turn(self) -> tuple[int, int]:
        """How far it has come, then which place it has among those as far; who is furthest behind comes first."""
        ...

    def has_room(self) -> bool:
        """Whether the rows of a step can be left without waiting; the caller has the flow's lock."""
        ...

    def step(self) -> bool:
        """Do a step, without the lock; return whether there are more. It keeps an error to itself and is `Halted`."""
        ...


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
        self._errands: list[Errand] = []  # those that nobody is on
        self._open_errands = 0
        self._on_errands: set[int] = set()  # threads
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

    def change(self, act: Callable[[], object], *, makes_room: bool = False) -> None:
        """Do something that others may wait for; where it `makes_room`, errands may go on too."""
        with self._lock:
            act()
            self._wake(for_errands=makes_room)

    def _wake(self, *, for_errands: bool = True) -> None:
        """Wake who has what it waits for, and nobody else: most changes are no news to most of those who wait."""
        idle: list[_Waiter] = []
        for waiter in self._waiting.values():
            if self._is_halted or waiter.ready():
                waiter.woken.notify()
            elif waiter.helps:
                idle.append(waiter)
        # To look for errands takes long where there are many shards.
        spare = self._permits.spare if for_errands and idle and self._errands else 0
        if spare > 0:
            for waiter, _ in zip(idle[:spare], self._ready_errands(), strict=False):
                waiter.woken.notify()

    # -- errands --------------------------------------------------------------------------------------------------

    def add(self, errand: Errand) -> None:
        """Take an errand on; the flow has begun with nobody yet."""
        self._errands.append(errand)
        self._open_errands += 1

    def do_errands(self) -> None:
        """Do errands until none is left; called by a task that has nothing else to do."""
        self.wait_until(lambda: not self._open_errands)

    def _ready_errands(self) -> Iterator[Errand]:
        """Return the errands that nobody is on and that have room, those furthest behind first."""
        for errand in sorted(self._errands, key=lambda errand: errand.turn):
            if errand.has_room():
                yield errand

    def _do(self, errand: Errand) -> None:
        me = threading.get_ident()
        has_more = False
        self._on_errands.add(me)
        try:
            has_more = errand.step()
        finally:
            with self._lock:
                self._on_errands.remove(me)
                if has_more:
                    self._errands.append(errand)
                else:
                    self._open_errands -= 1
                self._wake()

    # -- waiting --------------------------------------------------------------------------------------------------

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
        return not any(map(self._can_go_on, self._waiting.values()))

    def _can_go_on(self, waiter: _Waiter) -> bool:
        if waiter.ready():
            return True
        # Errands are for cores that nobody has work for.
        return waiter.helps and self._permits.spare > 0 and next(self._ready_errands(), None) is not None

    @property
    def is_over(self) -> bool:
        """Whether all tasks have ended."""
        return not self._live

    @property
    def wants_room(self) -> bool:
        """Whether somebody waits for room; the caller has the lock."""
        return bool(self._errands) or any(waiter.for_room for waiter in self._waiting.values())

    def wait_until(self, ready: Callable[[], bool], *, for_room: bool = False) -> None:
        """Do errands or wait; once true, `ready` must stay true until this task acts.

        `for_room`: more room may make it true. Who waits for that has rows in hand, and does no errands; nor does who
        is on one, or errands that wait would pile up on one thread.
        """
        helps = not for_room and threading.get_ident() not in self._on_errands
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                if self._is_halted:
                    raise Halted
                if ready():
                    return
                errand = next(self._ready_errands(), None) if helps and self._permits.spare >= 0 else None
                if errand is None:
                    self._wait(_Waiter(ready, for_room, helps, threading.Condition(self._lock)))
                else:
                    self._errands.remove(errand)
            # Not with the lock in hand: those who compute need it before they give up the right to.
            if errand is None:
                self._acquire()
            else:
                self._do(errand)

    def _wait(self, waiter: _Waiter) -> None:
        """Give up the right to compute until there is reason to go on; the caller has the lock."""
        me = threading.get_ident()
        self._waiting[me] = waiter
        self._permits.release()
        try:
            self._resolve()
            if not waiter.helps:
                self._wake()  # others may do errands meanwhile
            while not (self._is_halted or self._can_go_on(waiter)):
                waiter.woken.wait()
        finally:
            del self._waiting[me]

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
    """What a task waits for, whether more room may bring it, whether it does errands meanwhile, and how it is woken."""

    ready: Callable[[], bool]
    for_room: bool
    helps: bool
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

    @property
    def spare(self) -> int:
        """How many cores nobody wants; below 0 how many more are wanted than are free."""
        with self._lock:
            return self._free - len(self._waiting)

    def is_wanted_before(self, urgency: tuple[int, int]) -> bool:
        with self._lock:
            return bool(self._waiting) and self._waiting[0][0] < urgency
