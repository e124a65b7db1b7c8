"""Fragments one after the other, each fragment's shards on threads; batches pass by reference.

A fragment is finished before the next one begins. What moves between them is held in memory, which costs memory
in proportion to the rows that move, and cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from squill.engine.batch import Batch
from squill.errors import ClusterError, PlanError
from squill.exchange.merge import merge_runs
from squill.plan.fragments import Fragment
from squill.plan.nodes import Source
from squill.runtime.failure import located
from squill.runtime.progress import OnProgress, Progress
from squill.runtime.shard import DRIVER, ShardTask
from squill.runtime.splits import source_of, splits_of
from squill.runtime.threads import Stopped, run_on_threads

__all__ = ["LocalRuntime"]


class Outbox:
    """The batches of one producer, by receiver."""

    def __init__(self, receivers: int) -> None:
        self.sent: list[list[Batch]] = [[] for _ in range(receivers)]

    def send(self, receiver: int, batch: Batch) -> None:
        self.sent[receiver].append(batch)


class LocalRuntime:
    """`cores` threads of this process."""

    def __init__(self, cores: int) -> None:
        if cores < 1:
            raise PlanError(f"local: cores is {cores}", "give at least 1.")
        self._cores = cores
        self._is_closed = False

    @property
    def shards(self) -> int:
        return self._cores

    def describe(self) -> str:
        return f"local, {self._cores} threads"

    def run(self, fragments: Sequence[Fragment], on_progress: OnProgress | None = None) -> list[Batch]:
        if self._is_closed:
            raise ClusterError("this cluster is closed", "make another one with sq.local(…).")
        sent: dict[int, list[Outbox]] = {}
        for fragment in fragments:
            received = None if fragment.sender is None else sent.pop(fragment.sender)
            sent[fragment.number] = self._run_fragment(fragment, received, len(fragments), on_progress)
        (last,) = sent.values()
        return list(merge_runs([outbox.sent[DRIVER] for outbox in last]))

    def _run_fragment(
        self, fragment: Fragment, received: list[Outbox] | None, fragments: int, on_progress: OnProgress | None
    ) -> list[Outbox]:
        splits: Sequence[Source | None] = [None] * fragment.shards
        if received is None:
            splits = splits_of(source_of(fragment.root), fragment.shards)
        work = [_shard_work(fragment, shard, splits[shard], received or ()) for shard in range(fragment.shards)]

        def on_done(count: int) -> None:
            if on_progress is not None:
                on_progress(Progress(fragment=fragment.number, fragments=fragments, done=count, shards=fragment.shards))

        return run_on_threads(work, self._cores, on_done)

    def close(self) -> None:
        self._is_closed = True


def _shard_work(
    fragment: Fragment, shard: int, split: Source | None, senders: Iterable[Outbox]
) -> Callable[[Callable[[], None]], Outbox]:
    def work(checkpoint: Callable[[], None]) -> Outbox:
        outbox = Outbox(1 if fragment.delivers is None else fragment.delivers.shards)
        merged = merge_runs([sender.sent[shard] for sender in senders])
        try:
            ShardTask(fragment=fragment, shard=shard, split=split, received=merged).run(outbox, checkpoint)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised with its place)
            failure = located(error, fragment, shard)
            raise failure from failure.__cause__
        return outbox

    return work
