"""What runs in a task of a piped plan: all shards of its machines at once, and the ends of pipes to other tasks."""

from __future__ import annotations

import base64
import json
import pickle
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import flight

from squill.engine.batch import Batch
from squill.engine.progress.tally import Tally
from squill.errors import ShardError
from squill.exchange.flow import Halted
from squill.exchange.mailbox import Mailbox
from squill.exchange.scatter import Outbox
from squill.plan.fragments import Channel, Fragment, sources_of
from squill.plan.nodes.movement import ShardInput
from squill.plan.nodes.progress import ProgressSource
from squill.plan.serialise import loads
from squill.runtime.answer import Receipt
from squill.runtime.machine import Machine, Ports
from squill.runtime.progressive.outlet import ChangesAnswer
from squill.runtime.shard import BatchInbox, Inbox, read_split, rows_per_batch
from squill.runtime.spark.pipes.job import PipeJob, first_and_rows, with_frame
from squill.runtime.spark.pipes.kept import Kept, KeptInbox, KeptLog, kept_of
from squill.runtime.spark.pipes.lanes import Inward, LaneReader, Outward, pieces
from squill.runtime.spark.pipes.link import Link
from squill.runtime.spark.pipes.replay import raised
from squill.runtime.spark.pipes.wire import MESSAGE, Address, Calls, Pass, Server, connected, facing, message
from squill.time import INFINITY

__all__ = ["Invitation", "run_member"]

REPORT_SECONDS = 0.25
SETTLE_SECONDS = 0.01
"""A standstill that is over so soon is not worth a word."""


@dataclass(frozen=True)
class Invitation:
    """What a task needs to know to take part."""

    driver: Address
    access: Pass


def run_member(invitation: Invitation, number: int) -> None:
    """Take part in a run as task `number`; returns when the driver says that it is over, whatever came of it."""
    with ExitStack() as stack:
        driver = _Driver(invitation, number, stack)
        try:
            member = _Member(invitation, number, driver, stack)
        except Halted:
            return
        member.run()


class _Driver:
    """The way to the driver, for all threads of the task."""

    def __init__(self, invitation: Invitation, number: int, stack: ExitStack) -> None:
        self._options = invitation.access.options
        self._number = number
        self._client = stack.enter_context(connected(invitation.driver, invitation.access))

    def join(self, address: Address) -> Iterator[bytes]:
        """Yield what the driver has to say: the job, where the other tasks are, and then commands, to the end."""
        body = json.dumps({"task": self._number, "address": address}).encode()
        for result in self._client.do_action(flight.Action("join", body), self._options):
            yield result.body.to_pybytes()

    def tell(self, **values: Any) -> None:
        """Say something; it has been heard when this returns."""
        body = json.dumps({"task": self._number, **values}).encode()
        list(self._client.do_action(flight.Action("tell", body), self._options))

    def rows(self, frame: int, first: int, rows: int) -> Iterator[pa.Buffer]:
        """Yield rows of a frame that the driver has."""
        ticket = flight.Ticket(json.dumps([frame, first, rows]).encode())
        for chunk in self._client.do_get(ticket, self._options):
            yield chunk.data.column(0)[0].as_buffer()

    def changes(self) -> Any:
        """Return where to write changes of the answer."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"task": self._number}))
        writer, _ = self._client.do_put(descriptor, MESSAGE, self._options)
        return writer


class _AnswerLine:
    """Changes of the answer, on their way to the driver's outlet; waits while that is full."""

    def __init__(self, driver: _Driver) -> None:
        self._writer = driver.changes()
        self._lock = threading.Lock()
        self._told: dict[int, int] = {}

    def hand(self, shard: int, clock: int, changes: Batch | None) -> None:
        parts = [] if changes is None else list(pieces(changes))
        try:
            with self._lock:
                if not parts and self._told.get(shard) == clock:
                    return
                self._told[shard] = clock
                for part in parts:
                    self._writer.write_with_metadata(message(part), np.array([shard], np.int64).tobytes())
                self._writer.write_metadata(np.array([shard, clock], np.int64).tobytes())
        except (flight.FlightError, pa.ArrowException) as error:
            raise Halted from error  # the driver wants no more

    def close(self) -> None:
        with suppress(flight.FlightError, pa.ArrowException):  # it may have been closed at the other end
            self._writer.close()


class _SentTally(Tally):
    """Counts of the readers of one input that are in this task; the driver is told as they finish."""

    def __init__(self, number: int, driver: _Driver) -> None:
        super().__init__()
        self._number = number
        self._driver = driver

    def finish(self) -> None:
        rows, changes = self.take_counts()
        self._driver.tell(kind="tally", number=self._number, rows=rows, changes=changes)


class _Member:
    def __init__(self, invitation: Invitation, number: int, driver: _Driver, stack: ExitStack) -> None:
        self._number = number
        self._driver = driver
        self._stop = threading.Event()
        self._is_over = threading.Event()
        self._is_ready = threading.Event()
        self._stands_still = threading.Event()
        host = facing(invitation.driver)
        server = Server(host, invitation.access, Calls(put=self._put))
        stack.callback(server.shutdown)
        # Also where it comes to nothing: the server's end waits for calls, and calls may wait for this.
        stack.callback(self._is_ready.set)
        self._is_set_up = False
        self._commands = driver.join((host, server.port))
        self.job: PipeJob = loads(next(self._commands))
        command = json.loads(next(self._commands))
        if "stop" in command:
            raise Halted
        peers: list[Address] = [tuple(address) for address in command["peers"]]
        self._links = {
            task: self._link(invitation, address, stack) for task, address in enumerate(peers) if task != number
        }
        self._line = _AnswerLine(driver)
        stack.callback(self._line.close)
        fragments = self.job.plan.fragments
        self._tallies: dict[int, Tally] = {}
        self._machine = Machine(
            fragments,
            lambda fragment: self.job.shards_of(fragment, number),
            inner=(),
            outer=self.job.plan.channels,
            answer=ChangesAnswer(self._line),
            attempt=self.job.attempt,
            cores=self.job.cores,
        )
        self._senders = {channel.number: fragment for fragment in fragments for channel in fragment.outputs}
        self.schemas = {channel.number: channel.schema for channel in self.job.plan.channels.values()}
        self._inward = Inward(
            flow=self._machine.flow,
            boxes=self._boxes(),
            schemas=self.schemas,
            links=self._links,
            received=dict.fromkeys(self._links, 0),
        )
        self._machine.flow.on_standstill = self._stands_still.set
        self._is_set_up = True

    def _link(self, invitation: Invitation, address: Address, stack: ExitStack) -> Link:
        client = stack.enter_context(connected(address, invitation.access))
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"task": self._number}))
        link = Link(lambda: client.do_put(descriptor, MESSAGE, invitation.access.options)[0], self._lost)
        stack.callback(link.close)
        return link

    def _boxes(self) -> dict[tuple[int, int], dict[int, Mailbox]]:
        boxes: dict[tuple[int, int], dict[int, Mailbox]] = {}
        for fragment in self.job.plan.fragments:
            for number in {channel for channel in fragment.inputs if channel is not None}:
                for shard in self.job.shards_of(fragment, self._number):
                    box = Mailbox(self._machine.flow, self._producers(number, shard), whole_instants=True)
                    boxes.setdefault((number, shard), {})[fragment.number] = box
        return boxes

    def _producers(self, channel: int, receiver: int) -> list[int]:
        sender, routing = self._senders[channel], self.job.plan.channels[channel].routing
        return [shard for shard in range(sender.layout.shards) if receiver in routing.targets(shard)]

    # -- running ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        helpers = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("pipe-commands", self._obey), ("pipe-report", self._report))
        ]
        for helper in helpers:
            helper.start()
        self._is_ready.set()
        try:
            self._machine.run(self._open_ports, stop=self._stop)
            self._tell(kind="done")
        except Halted:
            pass
        except Exception as error:  # noqa: BLE001  (raised by the driver)
            self._tell(kind="failed", error=base64.b64encode(_pickled(error)).decode())
        finally:
            # Others may still send here, and until the driver says so nobody knows that they do not.
            self._is_over.wait()
            self._stands_still.set()
            for helper in helpers:
                helper.join()

    def _obey(self) -> None:
        try:
            for content in self._commands:
                command = json.loads(content)
                if "room" in command:
                    self._machine.flow.make_room(command["room"])
                if "stop" in command:
                    break
        except (flight.FlightError, pa.ArrowException):
            pass  # without a driver there is nothing to do
        self._halt()
        self._is_over.set()

    def _halt(self) -> None:
        self._stop.set()
        self._machine.flow.halt()

    def _lost(self, error: Exception) -> None:
        """Another task cannot be reached: perhaps because all is over, perhaps it is no more."""
        if not self._stop.is_set():
            self._tell(kind="lost", reason=f"{type(error).__name__}: {error}")
            self._halt()

    def _tell(self, **values: Any) -> None:
        # Where the driver does not hear it, the end of its commands says more.
        with suppress(flight.FlightError, pa.ArrowException):
            self._driver.tell(**values)

    def _report(self) -> None:
        """Say from time to time how far shards are, and at once when all wait."""
        last: dict[str, Any] = {}
        while not self._is_over.is_set():
            if self._stands_still.wait(REPORT_SECONDS):
                self._is_over.wait(SETTLE_SECONDS)
                self._stands_still.clear()
            clocks = [(work.fragment, work.shard, work.clock) for work in list(self._machine.works)]
            found: dict[str, Any] = {"clocks": clocks}
            self._machine.flow.change(lambda found=found: found.update(self._standing()))  # type: ignore[misc]
            if found != last and not self._is_over.is_set():
                last = found
                self._tell(kind="state", **found)

    def _standing(self) -> dict[str, Any]:
        flow = self._machine.flow
        if not flow.stands_still:
            return {}
        put = {task: link.put for task, link in self._links.items()}
        received = dict(self._inward.received)
        wants = {"wants_room": flow.wants_room, "room": flow.room, "is_over": flow.is_over}
        return {"still": {"put": put, "received": received, **wants}}

    def _put(self, command: bytes, messages: Iterable[tuple[Any, Any]]) -> None:
        task = json.loads(command)["task"]
        self._is_ready.wait()
        if not self._is_set_up:
            raise Halted
        try:
            for data, header in messages:
                self._inward.take(task, data, header)
        except Exception as error:
            self._lost(error)
            raise

    # -- ports --------------------------------------------------------------------------------------------------

    @contextmanager
    def _open_ports(self, fragment: Fragment, shard: int) -> Iterator[Ports]:
        with _MemberPorts(self, fragment, shard) as ports:
            yield ports

    def received(self, fragment: Fragment, shard: int, source: ShardInput) -> Inbox:
        sender = self._senders[source.channel]
        return LaneReader(
            self._inward,
            self._inward.boxes[source.channel, shard][fragment.number],
            source.channel,
            shard,
            fragment.number,
            {other: self.job.task_of(sender, other) for other in self._producers(source.channel, shard)},
        )

    def split(self, fragment: Fragment, shard: int, leaf: int) -> ProgressSource:
        place = fragment.number, leaf
        split = self.job.splits[place][shard]
        assert isinstance(split, ProgressSource)
        if place in self.job.frames:
            split = with_frame(split, self._driver.rows(self.job.frames[place], *first_and_rows(split)))
        tally = self._tallies.setdefault(split.tally, _SentTally(split.tally, self._driver))
        return replace(split, tally=tally)

    def outbox(self, channel: Channel, shard: int) -> Outbox:
        readers = self.job.plan.readers(channel.number)
        return Outward(
            self._inward,
            channel.number,
            shard,
            readers=[reader.number for reader in readers],
            task_of=lambda receiver: self.job.task_of(readers[0], receiver),
        )


class _MemberPorts:
    """A shard's ends of pipes; what goes out is kept, and what was kept goes out again, where that is asked for."""

    def __init__(self, member: _Member, fragment: Fragment, shard: int) -> None:
        self._member = member
        self._fragment = fragment
        self._shard = shard
        self._plain: dict[int, Outbox] = {}
        self._log: KeptLog | None = None
        self._kept = Kept()
        job = member.job
        if fragment.number in job.kept:
            files = [job.kept_file(fragment.number, shard, attempt) for attempt in range(job.attempt + 1)]
            if job.since is not None:
                self._kept = kept_of(files[:-1])
            channels = [channel.number for channel in fragment.outputs]
            self._log = KeptLog(files[-1], channels, self._kept.reached)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is not None:
            self._log.close()

    def inbox(self, leaf: int) -> Inbox:
        source = sources_of(self._fragment.root)[leaf]
        if isinstance(source, ShardInput):
            return self._member.received(self._fragment, self._shard, source)
        since = self._member.job.since
        batches = self._rows_read(leaf)
        if since is None:
            return BatchInbox(batches)
        brief = isinstance(source, ProgressSource) and source.brief
        if self._log is None:
            return BatchInbox(raised(batches, since, brief=brief))
        return KeptInbox(self._kept, self._member.schemas, self._plain, since, batches, brief=brief)

    def _rows_read(self, leaf: int) -> Iterator[Batch]:
        # A generator: where all rows are kept, nothing of the input is read.
        if self._kept.reached < INFINITY:
            split = replace(self._member.split(self._fragment, self._shard, leaf), wanted=max(self._kept.reached, 0))
            yield from read_split(split, rows_per_batch(self._fragment.root))

    def outbox(self, channel: Channel) -> Outbox:
        self._plain[channel.number] = outbox = self._member.outbox(channel, self._shard)
        return outbox if self._log is None else self._log.outbox(channel.number, outbox)

    def answer_outbox(self) -> None:
        return None

    def result(self, receipt: Receipt | None) -> None:
        return None


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)  # noqa: S301  (it was pickled here)
    except Exception:  # noqa: BLE001  (an error of the user's that cannot be pickled)
        return pickle.dumps(ShardError(f"{type(error).__name__}: {error}"))
    return content
