"""The driver's end of a piped run: tasks join here, get their commands here, and bring the answer.

It also is the one place that sees all tasks. When each of them says that all its shards wait, and everything that they
have sent each other has come, nobody can go on: then mailboxes get more room, if that helps anybody.
"""

from __future__ import annotations

import base64
import json
import pickle
import threading
from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Self

import numpy as np

from squill.engine.batch import Batch
from squill.engine.progress.tally import Tally
from squill.errors import InternalError
from squill.exchange.codec import decode
from squill.exchange.flow import Halted
from squill.plan.fragments import ShardedPlan
from squill.plan.serialise import dumps
from squill.runtime.progressive.outlet import Outlet
from squill.runtime.progressive.status import ShardClock
from squill.runtime.spark.pipes.job import Frames, PipeJob
from squill.runtime.spark.pipes.wire import Address, Calls, Pass, Server

__all__ = ["Hub"]

STOP = json.dumps({"stop": True}).encode()


class Hub:
    """One attempt of a run. As a context: left, all tasks are told to stop and the server is closed.

    ``error``    what a shard failed with, if one did.
    ``lost``     what tasks said of others that they could not reach.
    ``is_done``  whether all tasks have done all.
    """

    def __init__(
        self, host: str, access: Pass, job: PipeJob, *, frames: Frames, tallies: Sequence[Tally], outlet: Outlet
    ) -> None:
        self.error: BaseException | None = None
        self.lost: list[str] = []
        self._job = job
        self._plan: ShardedPlan = job.plan
        self._content = dumps(job)
        self._outlet = outlet
        self._real_tallies = tallies
        # A reader that does not come to its end has counted in vain: what it counted must not be added to.
        self._tallies = [Tally(tally.missing) for tally in tallies]
        self._lock = threading.Lock()
        self._addresses: dict[int, Address] = {}
        self._commands: dict[int, SimpleQueue[bytes]] = {task: SimpleQueue() for task in range(job.tasks)}
        self._done: set[int] = set()
        self._still: dict[int, dict[str, Any]] = {}
        self._clocks: dict[int, list[tuple[int, int, int]]] = {}
        self._is_stopped = False
        self._server = Server(host, access, Calls(put=self._put, get=frames.give, act=self._act))

    @property
    def port(self) -> int:
        return int(self._server.port)

    @property
    def is_stopped(self) -> bool:
        """Whether tasks were told to stop."""
        return self._is_stopped

    @property
    def is_done(self) -> bool:
        with self._lock:
            return len(self._done) == self._job.tasks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._server.shutdown()

    def stop(self) -> None:
        """Tell all tasks, also those that join later, to end."""
        with self._lock:
            self._is_stopped = True
        self._tell_all(STOP)

    def _tell_all(self, command: bytes) -> None:
        for queue in self._commands.values():
            queue.put(command)

    def clocks(self) -> list[ShardClock]:
        """Return how far shards were when their tasks last said so."""
        with self._lock:
            known = {(fragment, shard): clock for told in self._clocks.values() for fragment, shard, clock in told}
            places = {task: f"task {task} at {host}" for task, (host, _) in self._addresses.items()}
        return [
            ShardClock(
                clock=clock,
                fragment=fragment,
                shard=shard,
                place=places[self._job.task_of(self._plan.fragments[fragment - 1], shard)],
            )
            for (fragment, shard), clock in known.items()
        ]

    # -- what tasks call ----------------------------------------------------------------------------------------

    def _act(self, kind: str, body: bytes) -> Iterator[bytes]:
        told = json.loads(body)
        if kind == "join":
            return self._joined(told["task"], tuple(told["address"]))
        getattr(self, f"_on_{told.pop('kind')}")(**told)
        return iter(())

    def _joined(self, task: int, address: Address) -> Iterator[bytes]:
        yield self._content
        with self._lock:
            self._addresses[task] = address
            all_there = len(self._addresses) == self._job.tasks
        if all_there:
            peers = [self._addresses[task] for task in range(self._job.tasks)]
            self._tell_all(json.dumps({"peers": peers}).encode())
        command = b""
        while command != STOP:
            command = self._commands[task].get()
            yield command

    def _on_done(self, task: int) -> None:
        with self._lock:
            self._done.add(task)
        if self.is_done:
            self.stop()

    def _on_failed(self, task: int, error: str) -> None:
        with self._lock:
            if self.error is None:
                self.error = pickle.loads(base64.b64decode(error))  # noqa: S301  (a member's: it has the secret)
        self.stop()

    def _on_lost(self, task: int, reason: str) -> None:
        with self._lock:
            self.lost.append(f"task {task}: {reason}")
        self.stop()

    def _on_tally(self, task: int, number: int, rows: int, changes: list[tuple[int, int]]) -> None:
        with self._lock:
            tally = self._tallies[number]
            tally.add_counts(rows, changes)
            tally.finish()
            real = self._real_tallies[number]
            if tally.is_complete and not real.is_complete:
                real.add_counts(*tally.take_counts())
                for _ in range(real.missing):
                    real.finish()

    def _on_state(self, task: int, clocks: list[tuple[int, int, int]], still: dict[str, Any] | None = None) -> None:
        with self._lock:
            self._clocks[task] = clocks
            if still is None:
                self._still.pop(task, None)
                return
            self._still[task] = still
            if not self._nobody_can_go_on():
                return
            wants_room = any(report["wants_room"] for report in self._still.values())
            room = max(1, *(2 * report["room"] for report in self._still.values()))
            self._still = {}
        if wants_room:
            self._tell_all(json.dumps({"room": room}).encode())
            return
        with self._lock:
            self.error = InternalError("every shard waits for rows that nobody is going to send")
        self.stop()

    def _nobody_can_go_on(self) -> bool:
        """Whether all tasks wait, and have all that the others have sent.

        A task that was woken after its word was so by a message that its sender's word does not count, so that sender
        was woken before, and so on: there was no first one.
        """
        reports = self._still.values()
        if len(reports) < self._job.tasks or all(report["is_over"] for report in reports):
            return False
        return all(
            put == self._still[int(receiver)]["received"][str(sender)]
            for sender, report in self._still.items()
            for receiver, put in report["put"].items()
        )

    def _put(self, command: bytes, messages: Iterable[tuple[Any, Any]]) -> None:
        schema = self._plan.answer.root.schema
        waiting: list[Batch] = []
        for data, header in messages:
            if self._is_stopped and not self.is_done:
                raise Halted
            shard, *clock = np.frombuffer(header, np.int64).tolist()
            if data is not None:
                waiting.append(decode(data, schema))
            else:
                changes = Batch.concat(waiting) if waiting else None
                waiting = []
                self._outlet.hand(shard, clock[0], changes, self._job.attempt)
