"""The shards of one machine, on threads; rows that stay on the machine pass by reference.

All fragments that are given run at once, each shard on a thread of its own, of which as many compute at a time
as there are cores. Shards that only bring rows to others have no thread: those do it while they would wait, in steps.
Between them stand bounded mailboxes. What comes from elsewhere and what leaves goes through
*ports*, which the runtime has for every shard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, Protocol

from squill.engine.compile import Entry
from squill.engine.machine_memory import sharing
from squill.engine.operator import Operator
from squill.exchange.deal import Deal
from squill.exchange.flow import Flow, Halted, Urgency
from squill.exchange.mailbox import Mailbox, MailboxReader, MailboxWriter
from squill.exchange.routers import router_for
from squill.exchange.scatter import Outbox, ScatterSink
from squill.plan.fragments import Channel, Fragment
from squill.plan.nodes.movement import ShardInput
from squill.plan.reading_order import reading_order
from squill.plan.routing import Routing
from squill.runtime.answer import Answer, Part, Receipt, send_to_driver
from squill.runtime.failure import located
from squill.runtime.report import MeteredOutbox, Work
from squill.runtime.shard import BatchInbox, Inbox, shard_steps
from squill.runtime.shard_task import ShardTask, Steps
from squill.runtime.threads import Checkpoint, run_on_threads
from squill.time import INFINITY, ProgressType

__all__ = ["MAILBOX_ROWS", "Feeder", "Machine", "OpenPorts", "Ports", "one_sink"]

MAILBOX_ROWS = 1 << 20
"""How many rows a mailbox holds before its producers wait; they have equal shares, of a batch at least."""

LEAST_ROWS = 65_536
EARLY_ROWS = 16_384
"""The same where somebody waits for the first rows of the answer: producers that are far ahead keep others waiting."""
TURN_OF_STEPS = 0.005
"""So many seconds a shard of a progressive plan computes before it gives way to who is behind: to wake another one
takes a tenth of a millisecond or more, with the interpreter's lock in hand, and a batch may take little longer."""


class Ports(Protocol):
    """What one shard has to do with the world outside its machine."""

    def inbox(self, leaf: int) -> Inbox:
        """Return the rows of a stored source or of a channel from elsewhere, by the leaf's place in the plan."""
        ...

    def outbox(self, channel: Channel) -> Outbox:
        """Return where rows go that leave the machine."""
        ...

    def answer_outbox(self) -> Outbox | None:
        """Return where rows of the answer may go as they come; None where a receipt costs no more."""
        ...

    def result(self, receipt: Receipt | None) -> Any:
        """Return what the shard has to report once it is done; `receipt` is of its rows, when they are the answer."""
        ...


OpenPorts = Callable[[Fragment, int], AbstractContextManager[Ports]]
Feeder = Callable[[Checkpoint], None]
"""Work beside the shards: brings rows from elsewhere into mailboxes."""


class Machine:
    """The given shards of fragments, ready to run.

    ``inner``    the channels between these fragments, ``outer`` those that leave; a channel may be both.
    ``answer``   what becomes of the rows of a fragment that sends none on; `attempt` is the number of this try.
    ``feeders``  how many feeders `run` is going to be given.
    ``deal_of``  how the keys of a movement are dealt out, where not plainly.
    ``is_early`` whether somebody waits for the first rows of the answer.
    """

    def __init__(
        self,
        fragments: Sequence[Fragment],
        shards_of: Callable[[Fragment], Sequence[int]],
        *,
        inner: Collection[int],
        outer: Collection[int] = (),
        answer: Answer,
        attempt: int = 0,
        cores: int,
        feeders: int = 0,
        deal_of: Callable[[Routing], Deal | None] = lambda _: None,
        is_early: bool = False,
    ) -> None:
        self._answer = answer
        self._deal_of = deal_of
        self._attempt = attempt
        self._shards = [(fragment, shard) for fragment in fragments for shard in shards_of(fragment)]
        self._inner = frozenset(inner)
        self._outer = frozenset(outer)
        widest = max((len(shards_of(fragment)) for fragment in fragments), default=1)
        room = EARLY_ROWS if is_early else max(LEAST_ROWS, MAILBOX_ROWS // widest)
        is_progress = any(isinstance(fragment.root.time, ProgressType) for fragment in fragments)
        turn = TURN_OF_STEPS if is_progress else 0.0
        errands = sum(self._only_brings(fragment) for fragment, _ in self._shards)
        threads = feeders + len(self._shards) - errands
        # Where few shards wait for rows, others help them to bring these.
        self._helpers = min(errands, max(0, cores - threads))
        self.flow = Flow(tasks=threads + self._helpers, cores=cores, room=room, turn=turn)
        self.works = [Work(fragment=fragment.number, shard=shard) for fragment, shard in self._shards]
        """What each shard did; complete once `run` has returned."""
        self._post = _PostOffice(self.flow, fragments, shards_of, inner)
        self._places = _places(fragments)

    def _only_brings(self, fragment: Fragment) -> bool:
        """Whether it reads what is stored, row by row, for shards of this machine: they do that while they wait for it.

        What keeps rows may give many at once, more than there is room for, and who is on it could not take them.
        """
        sends = {channel.number for channel in fragment.outputs}
        return bool(sends) and sends <= self._inner and not sends & self._outer and fragment.reads_row_by_row

    def run(
        self,
        open_ports: OpenPorts,
        feeders: Sequence[Feeder] = (),
        on_done: Callable[[int], object] | None = None,
        stop: Event | None = None,
    ) -> list[Any]:
        """Run all to the end; return the shards' results, fragment by fragment. `stop`, once set, ends it early."""
        stop = Event() if stop is None else stop
        tasks: list[ShardTask] = []
        threads: list[Callable[[Checkpoint], Any]] = []
        for (fragment, shard), work in zip(self._shards, self.works, strict=True):
            steps = self._steps(open_ports, fragment, shard, work, partial(_check, stop))
            if self._only_brings(fragment):
                place = min(self._places[channel.number] for channel in fragment.outputs)
                tasks.append(ShardTask(steps, work, partial(_check, stop), self._has_room(fragment, shard), place))
                self.flow.add(tasks[-1])
            else:
                tasks.append(ShardTask(steps, work, partial(self._between_steps, stop)))
                threads.append(self._permitted(tasks[-1].run, partial(_urgency_in(fragment), work)))
        threads += [self._permitted(feeder) for feeder in feeders]
        threads += [self._permitted(lambda _: self.flow.do_errands(), _last)] * self._helpers
        failure: Exception | None = None
        try:
            with sharing(sum(not fragment.reads_row_by_row for fragment, _ in self._shards)):
                run_on_threads(threads, len(threads), _each_once(tasks, on_done), self.flow.halt, stop)
        except Exception as error:  # noqa: BLE001  (raised below)
            failure = next((task.error for task in tasks if task.error is not None), error)
        finally:
            for task in tasks:
                task.abandon()
        if failure is not None:
            raise failure from failure.__cause__
        assert all(task.is_over for task in tasks), "who gets rows ends after who brings them"
        return [task.result for task in tasks]

    def _steps(
        self, open_ports: OpenPorts, fragment: Fragment, shard: int, work: Work, checkpoint: Checkpoint
    ) -> Steps:
        try:
            with open_ports(fragment, shard) as ports, ExitStack() as stack:
                part: Part | None = None
                outbox = None
                if not fragment.outputs:
                    box = ports.answer_outbox()
                    outbox = None if box is None else MeteredOutbox(box, work)
                    part = stack.enter_context(self._answer.open(fragment.root, shard, self._attempt, outbox))
                sinks = self._sinks(fragment, shard, ports, work) if part is None else [part.sink]
                inboxes = self._inboxes(fragment, shard, ports)
                for inbox in inboxes:
                    if isinstance(inbox, BatchInbox):
                        stack.callback(inbox.close)
                yield from shard_steps(fragment.root, inboxes, one_sink(fragment, sinks), work, checkpoint)
                return ports.result(None if part is None else _without_rows(part.finish(), outbox, work))
        except Halted:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised with its place)
            failure = located(error, fragment, shard)
            raise failure from failure.__cause__

    def _between_steps(self, stop: Event) -> None:
        _check(stop)
        self.flow.give_way()

    def _has_room(self, fragment: Fragment, shard: int) -> Callable[[], bool]:
        writers = [self._post.writer(channel, shard) for channel in fragment.outputs]
        return lambda: all(writer.has_room() for writer in writers)

    def _permitted(
        self, work: Callable[[Checkpoint], Any], urgency: Urgency | None = None
    ) -> Callable[[Checkpoint], Any]:
        def run(checkpoint: Checkpoint) -> Any:
            self.flow.begin(urgency)
            try:
                return work(checkpoint)
            finally:
                self.flow.end()

        return run

    def _inboxes(self, fragment: Fragment, shard: int, ports: Ports) -> list[Inbox]:
        return [
            self._post.reader(fragment, channel, shard) if channel in self._inner else ports.inbox(leaf)
            for leaf, channel in enumerate(fragment.inputs)
        ]

    def _sinks(self, fragment: Fragment, shard: int, ports: Ports, work: Work) -> list[Operator]:
        boxes: list[tuple[Channel, Outbox]] = []
        for channel in fragment.outputs:
            if channel.number in self._inner:
                boxes.append((channel, self._post.writer(channel, shard)))
            if channel.number in self._outer:
                boxes.append((channel, ports.outbox(channel)))
        routers = [
            router_for(channel.routing, shard, fragment.root, self._deal_of(channel.routing)) for channel, _ in boxes
        ]
        return [
            ScatterSink(fragment.root, router, MeteredOutbox(outbox, work))
            for router, (_, outbox) in zip(routers, boxes, strict=True)
        ]


def _without_rows(receipt: Receipt, outbox: Outbox | None, work: Work) -> Receipt:
    """Send the rows of a receipt on, if they can be; return what is to be reported."""
    if outbox is None:
        work.rows_out += sum(map(len, receipt.pieces))
        return receipt
    send_to_driver(outbox, receipt.pieces)
    return replace(receipt, pieces=())


def _places(fragments: Sequence[Fragment]) -> dict[int, int]:
    """Return by channel which of the inputs of those who read it it is, in the order in which these are read."""
    found = [
        (source.channel, place)
        for fragment in fragments
        for place, source in enumerate(reading_order(fragment.root))
        if isinstance(source, ShardInput)
    ]
    return dict(sorted(found, reverse=True))  # the first place, where there are several


def _each_once(tasks: Sequence[ShardTask], on_done: Callable[[int], object] | None) -> Callable[[int], None]:
    """Return what is called when some task may be over: it tells of each that is, once."""
    told = 0

    def tell(_: int) -> None:
        nonlocal told
        while told < sum(task.is_over for task in tasks):
            told += 1
            if on_done is not None:
                on_done(told)

    return tell


def _check(stop: Event) -> None:
    if stop.is_set():
        raise Halted


def _urgency_in(fragment: Fragment) -> Callable[[Work], tuple[int, int]]:
    return _furthest_behind if isinstance(fragment.root.time, ProgressType) else _furthest_on


def _furthest_behind(work: Work) -> tuple[int, int]:
    """Somebody waits for early answers: who has come least far holds them back, and what is on its way comes first."""
    return work.clock, -work.fragment


def _furthest_on(work: Work) -> tuple[int, int]:
    """What has moved is worked on before more is read, as long as the caches have it."""
    return 0, -work.fragment


def _last() -> tuple[int, int]:
    return INFINITY, 0


def one_sink(fragment: Fragment, sinks: Sequence[Operator]) -> Operator:
    """Return where a fragment's rows go: the sink, or a fork to several."""
    if len(sinks) == 1:
        return sinks[0]
    fork = Entry(fragment.root)
    fork.consumers = [(sink, 0) for sink in sinks]
    return fork


class _PostOffice:
    """The mailboxes of all channels that stay on the machine, by channel, reading fragment and shard."""

    def __init__(
        self,
        flow: Flow,
        fragments: Sequence[Fragment],
        shards_of: Callable[[Fragment], Sequence[int]],
        inner: Collection[int],
    ) -> None:
        self._flow = flow
        self._boxes: dict[int, dict[int, list[Mailbox]]] = {}
        self._by_reader: dict[tuple[int, int, int], Mailbox] = {}
        by_number = {fragment.number: fragment for fragment in fragments}
        channels = {channel.number: channel for fragment in fragments for channel in fragment.outputs}
        for fragment in fragments:
            for number in set(fragment.inputs) & set(inner):
                assert number is not None
                channel = channels[number]
                is_progress = isinstance(by_number[channel.sender].root.time, ProgressType)
                senders = shards_of(by_number[channel.sender])
                for shard in shards_of(fragment):
                    producers = [sender for sender in senders if shard in channel.routing.targets(sender)]
                    mailbox = Mailbox(flow, producers, whole_instants=is_progress)
                    self._boxes.setdefault(number, {}).setdefault(shard, []).append(mailbox)
                    self._by_reader[number, fragment.number, shard] = mailbox

    def reader(self, fragment: Fragment, channel: int | None, shard: int) -> Inbox:
        assert channel is not None
        return MailboxReader(self._by_reader[channel, fragment.number, shard])

    def writer(self, channel: Channel, shard: int) -> MailboxWriter:
        return MailboxWriter(self._flow, shard, self._boxes[channel.number])
