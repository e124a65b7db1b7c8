"""What the tasks of a piped plan are told: the plan, which of its shards each of them runs, and what these read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from squill.engine.progress.tally import Tally
from squill.errors import InternalError
from squill.plan.fragments import Fragment, ShardedPlan
from squill.plan.node import Node
from squill.plan.nodes import FrameSource, Source
from squill.plan.nodes.progress import ProgressSource
from squill.plan.rebuild import substitute
from squill.plan.storable import refuse_unstorable
from squill.runtime.splits import splits_of_fragment, without_rows

__all__ = ["Frames", "PipeJob", "Prepared", "prepared", "with_frame"]

PIECE_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class PipeJob:
    """The same for all tasks of one attempt.

    ``splits``  by (fragment, leaf) what each shard reads; of frames the number stands for the rows, which the driver
                gives to who reads them, and of tallies too.
    ``tasks``   how many tasks there are, with `cores` each.
    ``since``   the progress from which on answers are still wanted: what was before need only be there then.
    ``kept``    the fragments whose channels are kept in `folder`.
    """

    plan: ShardedPlan
    splits: Mapping[tuple[int, int], Sequence[Source]]
    frames: Mapping[tuple[int, int], int]
    tasks: int
    cores: int
    since: int | None = None
    attempt: int = 0
    kept: frozenset[int] = frozenset()
    folder: str = ""

    def kept_file(self, fragment: int, shard: int, attempt: int) -> Path:
        """Return the file of what one attempt of a shard sends."""
        return Path(self.folder) / f"f{fragment}-s{shard}-a{attempt}.rows"

    def task_of(self, fragment: Fragment, shard: int) -> int:
        """Return the task that runs a shard: machine by machine, so that those of a machine stay together."""
        return fragment.layout.machine_of(shard) % self.tasks

    def shards_of(self, fragment: Fragment, task: int) -> list[int]:
        return [shard for shard in range(fragment.layout.shards) if self.task_of(fragment, shard) == task]


class Frames:
    """The rows in memory that shards read, by number."""

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> int:
        for number, known in enumerate(self._frames):
            if known is frame:
                return number
        self._frames.append(frame)
        return len(self._frames) - 1

    def give(self, ticket: bytes) -> Iterator[bytes]:
        """Yield the rows that a ticket names, in pieces."""
        number, first, rows = json.loads(ticket)
        for piece in self._frames[number].slice(first, rows).iter_slices(PIECE_ROWS):
            content = io.BytesIO()
            piece.write_ipc(content)
            yield content.getvalue()


@dataclass(frozen=True)
class Prepared:
    """What all attempts of a plan share; `tallies` are the driver's, by the number that tasks know them by."""

    job: PipeJob
    frames: Frames
    tallies: Sequence[Tally]


def prepared(plan: ShardedPlan, *, tasks: int, cores: int, hosts_of: Any = None) -> Prepared:
    """Return the job of a plan whose sources are all of progress."""
    refuse_unstorable(plan.answer.root.schema, "progressive")
    frames = Frames()
    tallies: list[Tally] = []
    splits: dict[tuple[int, int], list[Source]] = {}
    held: dict[tuple[int, int], int] = {}
    for fragment in plan.fragments:
        for place, parts in splits_of_fragment(fragment, hosts_of):
            (source, *_) = parts
            if not isinstance(source, ProgressSource):
                raise InternalError(f"{source.name} has no progress")
            if not any(source.tally is tally for tally in tallies):
                tallies.append(source.tally)
            number = next(number for number, tally in enumerate(tallies) if tally is source.tally)
            if isinstance(source.source, FrameSource):
                held[place] = frames.add(source.source.frame)
            splits[place] = [replace(_bare_source(part), tally=number) for part in parts]
    job = PipeJob(
        plan=ShardedPlan(fragments=tuple(map(_bare, plan.fragments))),
        splits=splits,
        frames=held,
        tasks=tasks,
        cores=cores,
    )
    return Prepared(job, frames, tallies)


def _bare(fragment: Fragment) -> Fragment:
    """Return the fragment as all tasks may have it: without rows, and without what counts them."""

    def bare(node: Node) -> Node | None:
        return replace(_bare_source(node), given=None, parts=None) if isinstance(node, ProgressSource) else None

    return replace(fragment, root=substitute(fragment.root, bare))


def _bare_source(source: Source) -> ProgressSource:
    assert isinstance(source, ProgressSource)
    return replace(source, source=without_rows(source.source), tally=None)


def with_frame(source: ProgressSource, pieces: Iterator[pa.Buffer]) -> ProgressSource:
    """Return a split with its rows, which come from its first one to its last."""
    inner = source.source
    assert isinstance(inner, FrameSource)
    assert source.parts is not None
    frame = pl.concat([inner.frame, *(pl.read_ipc(io.BytesIO(piece)) for piece in pieces)])
    first = first_and_rows(source)[0]
    parts = tuple(replace(part, held=first) for part in source.parts)
    return replace(source, source=replace(inner, frame=frame), parts=parts)


def first_and_rows(source: ProgressSource) -> tuple[int, int]:
    """Return where the rows of a split of a frame begin, and how many they are up to its last."""
    parts = source.parts or ()
    first = min((part.first for part in parts), default=0)
    last = max((part.first + (part.rows or 0) for part in parts), default=0)
    return first, last - first
