"""The shards that one process holds from epoch to epoch, and how their states come from and go to the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from squill.engine.batch import Batch
from squill.engine.egress import result_frame
from squill.engine.egress_changes import change_frame
from squill.engine.state.belonging import Belonging
from squill.engine.state.versions import Version, VersionedJournal, read_version
from squill.errors import ClusterError, InternalError
from squill.exchange.flow import Halted
from squill.plan.division import Division
from squill.plan.fragments import Fragment
from squill.plan.node import Node
from squill.runtime.failure import located
from squill.runtime.live.orders import OutputOrder, Seen, ShardOrder, ShardReport
from squill.runtime.live.postbox import Postbox
from squill.runtime.live.shard import LiveShard
from squill.runtime.live.share import default_memory
from squill.runtime.stored_answer import sync_to_disk
from squill.runtime.threads import Checkpoint, run_on_threads

__all__ = ["LivePlan", "ShardHost", "answer_frame", "state_folder", "write_answer"]


@dataclass(frozen=True, kw_only=True)
class LivePlan:
    """What every process knows of a live query.

    ``fragments``  by number.
    ``folder``     the checkpoint; None when states are in memory only.
    ``divisions``  by fragment, how its shards can be divided; empty when they cannot.
    ``memory``     what the states that a process holds may take, in bytes; None is a part of what the machine has.
    """

    fragments: Mapping[int, Fragment]
    emit: str
    folder: str | None
    divisions: Mapping[int, Division] = field(default_factory=dict)
    memory: int | None = None

    def belonging(self, fragment: int) -> Belonging:
        return Belonging.of(self.fragments[fragment].root, self.emit)


def state_folder(checkpoint: str, fragment: int, shard: int) -> Path:
    """Return where the versions of a shard's state are."""
    return Path(checkpoint) / "state" / f"{fragment}-{shard}"


def answer_frame(rows: Batch, node: Node, emit: str) -> pl.DataFrame:
    """Return rows of the answer as people get them."""
    return change_frame(rows, node) if emit == "changes" else result_frame(rows, node)


@dataclass
class _Held:
    shard: LiveShard
    journal: VersionedJournal
    version: Version | None = None
    was_loaded: bool = False


class ShardHost:
    """Shards by their place, with the version that each has come to; a shard that failed is forgotten.

    Where the states are more than the process may hold, a shard leaves when it has worked and its version is written,
    and comes back from there when it is wanted again. All shards are wanted in every epoch, so those that fit stay and
    only the others come and go.

    `processes` is how many of them share the machine.
    """

    def __init__(self, plan: LivePlan, processes: int = 1) -> None:
        self._plan = plan
        self._held: dict[tuple[int, int], _Held] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        """What the states were last, also of shards that have left."""
        self._memory = default_memory(processes) if plan.memory is None else plan.memory

    @property
    def versions(self) -> dict[tuple[int, int], Version | None]:
        """Which shards are held, and at which version."""
        return {place: held.version for place, held in self._held.items()}

    @property
    def most_at_once(self) -> int | None:
        """How many shards may work at once; None where all of them fit."""
        if sum(self._sizes.values()) <= self._memory or self._plan.folder is None:
            return None
        return max(1, self._memory // max(self._sizes.values()))

    def read(self, order: ShardOrder, checkpoint: Checkpoint) -> dict[int, Seen]:
        """Let a shard take what is new of live inputs; return how far each has come in it, by leaf."""

        def step() -> dict[int, Seen]:
            checkpoint()
            if not order.reads:
                return {}  # it need not be here before it works
            shard = self._ready(order).shard
            shard.read_live(order)
            return shard.seen

        return self._guarded(order, step)

    def work(self, order: ShardOrder, until: dict[int, int], postbox: Postbox, checkpoint: Checkpoint) -> ShardReport:
        """Let a shard that has read its live inputs take all others and work; return its report.

        Its next state is written when this returns.
        """

        def step() -> ShardReport:
            held = self._held.get(order.place) if order.reads else self._ready(order)
            if held is None:
                raise InternalError(f"shard {order.place} works before it has read")
            shard, rows = held.shard, None
            shard.read_rest(order)
            has_work = shard.has_news(order, until)
            with postbox:
                if has_work:
                    rows = shard.work(order, until, postbox, checkpoint)
                else:
                    shard.tell(postbox)
            late = shard.take_late()
            has_news = has_work or order.origin is not None
            written = self._write(order, held if has_news else None, rows)
            self._sizes[order.place] = held.journal.live_bytes
            self._leave_if_crowded(order)
            return ShardReport(
                fragment=order.fragment,
                shard=order.shard,
                version=held.version,
                has_news=has_news,
                runs=postbox.runs(),
                told=postbox.told,
                seen=shard.seen,
                offsets=shard.offsets,
                late=late,
                rows=rows if written is None else None,
                file=written,
                rows_read=shard.rows_read,
                was_loaded=held.was_loaded,
                state_rows=shard.state_rows,
                state_bytes=held.journal.state_bytes,
                live_bytes=held.journal.live_bytes,
            )

        return self._guarded(order, step)

    def look_ahead(self, order: ShardOrder, postbox: Postbox, checkpoint: Checkpoint) -> ShardReport:
        """Run a copy of a shard to the end of time; the shard itself stays as it is."""

        def step() -> ShardReport:
            shard = self._ready(order).shard.copy()
            shard.read(order)
            with postbox:
                rows = shard.work(order, {}, postbox, checkpoint)
            self._leave_if_crowded(order)
            return ShardReport(
                fragment=order.fragment, shard=order.shard, version=order.before, runs=postbox.runs(), rows=rows
            )

        return self._guarded(order, step)

    def forget(self) -> None:
        """Let all shards go: their next epoch begins from the checkpoint."""
        self._held.clear()

    def _leave_if_crowded(self, order: ShardOrder) -> None:
        """Let a shard go that has worked, where the states of those that are here take too much."""
        if (
            self._plan.folder is not None
            and sum(self._sizes.get(place, 0) for place in list(self._held)) > self._memory
        ):
            self._held.pop(order.place, None)

    def _guarded(self, order: ShardOrder, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except BaseException as error:
            # It is half way through an epoch, which nobody will commit.
            self._held.pop(order.place, None)
            if isinstance(error, Halted) or not isinstance(error, Exception):
                raise
            failure = located(error, self._plan.fragments[order.fragment], order.shard)
            raise failure from failure.__cause__

    def _ready(self, order: ShardOrder) -> _Held:
        """Return the shard at the version that the order wants: as it stands, or from the checkpoint."""
        held = self._held.get(order.place)
        if held is not None and held.version == order.before:
            held.was_loaded = False
            return held
        self._held.pop(order.place, None)
        fragment = self._plan.fragments[order.fragment]
        shard = LiveShard(fragment, order.shard, self._plan.emit, self._plan.divisions.get(order.fragment))
        held = _Held(shard, self._new_journal(order))
        if order.origin is not None:
            origin = order.origin
            # It is not gone on with: the part's first version is written as a whole.
            shard.load_part(self._stored(order, origin.shard, origin.version, self._new_journal(order)), origin.shard)
        elif order.before is not None:
            shard.load(self._stored(order, order.shard, order.before, held.journal))
        held.version = order.before
        held.was_loaded = order.before is not None or order.origin is not None
        self._held[order.place] = held
        return held

    def _new_journal(self, order: ShardOrder) -> VersionedJournal:
        return VersionedJournal(self._plan.belonging(order.fragment).to_json())

    def _stored(self, order: ShardOrder, shard: int, version: Version, journal: VersionedJournal) -> Any:
        """Return a state from the checkpoint."""
        if self._plan.folder is None:
            raise InternalError(f"the state of shard {order.place} is lost: there is no checkpoint")
        return read_version(state_folder(self._plan.folder, order.fragment, shard), version, journal)

    def _write(self, order: ShardOrder, changed: _Held | None, rows: Batch | None) -> tuple[str, int] | None:
        """Write the rows of the answer and the next state side by side: either waits for the disk at times."""

        def write_rows(_: Checkpoint) -> tuple[str, int] | None:
            return self._written(order, rows)

        def write_state(_: Checkpoint) -> None:
            if changed is not None:
                self._keep(order, changed)

        if rows is None or order.output is None or changed is None or self._plan.folder is None:
            write_state(_always)
            return write_rows(_always)
        written, _ = run_on_threads([write_rows, write_state], 2)
        return written

    def _keep(self, order: ShardOrder, held: _Held) -> None:
        if self._plan.folder is None:
            held.version = Version((held.version.number if held.version else 0) + 1, "memory")
            return
        folder = state_folder(self._plan.folder, *order.place)
        held.version = held.journal.write(folder, held.shard.save(), order.before)

    def _written(self, order: ShardOrder, rows: Batch | None) -> tuple[str, int] | None:
        if order.output is None or rows is None:
            return None
        frame = answer_frame(rows, self._plan.fragments[order.fragment].root, self._plan.emit)
        return write_answer(frame, order.output, order.shard), frame.height


def _always() -> None:
    """Go on: what is computed already is also written."""


def write_answer(frame: pl.DataFrame, order: OutputOrder, shard: int) -> str:
    """Write rows under a name that no pattern for finished files matches."""
    path = Path(order.folder) / f".{order.stem}-{shard:04}-{os.urandom(4).hex()}.unfinished"
    try:
        if order.format == "parquet":
            # Like Spark's own files: what is written while others wait is not squeezed to the last.
            frame.write_parquet(path, compression="snappy")
        else:
            frame.write_ipc(path)
        sync_to_disk(path)
    except FileNotFoundError as error:
        raise ClusterError(
            f"start: the folder {order.folder!r}, to which the answer is written, is gone",
            "bring it back, with what it held, and start again with the same checkpoint: it goes on where it was.",
        ) from error
    return str(path)
