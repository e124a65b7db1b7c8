"""Ordinary queries as live ones: their sources become inputs whose rows come in epochs."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

import squill as sq
from squill.plan.node import Node, walk
from squill.plan.nodes import EventsSource, FrameSource
from squill.plan.nodes.movement import Split
from squill.plan.rebuild import rebuild, substitute
from squill.plan.rewrite.parallelise import parallelise
from squill.sharded import ShardedStream
from squill.stream import Stream
from squill.testing import LiveTest, Scripted, assert_same_events, scripted
from squill.testing.live import MEMORY

EMITS = ("closed", "changes")
LONG: dict[str, Any] = {"d": "1000d", "ms": "100s", "us": "100s", "ns": "100s", "1": 100_000}
"""Longer than any of the tests' data, by unit of time."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How the rows of a live run come: `waits` has them in any order, under a policy that waits for all.

    ``stored``    the number of a source that stays a stored one.
    ``restarts``  now and then the query begins anew, from its checkpoint.
    ``grows``     once in between it begins anew on so many times the shards.
    ``begins``    the first rows are stored ones, from whose state the query begins; not with `waits`.
    """

    seed: int
    shards: int = 1
    waits: bool = False
    stored: int = -1
    restarts: bool = False
    grows: int = 1
    begins: bool = False


class AsLive:
    """A query over frames and events, with its timed sources taken out."""

    def __init__(self, stream: Stream, stored: int = -1) -> None:
        self._frames: dict[int, pl.DataFrame] = {}
        plan = rebuild(stream._outside(), self._as_intervals)
        nodes = [node for node in walk(plan) if isinstance(node, FrameSource) and node.time is not None]
        self.nodes: list[Node] = [node for number, node in enumerate(nodes) if number != stored]
        self.stream = Stream(plan)

    def _as_intervals(self, node: Node, _original: Node) -> Node:
        """Return a timed source as a frame of rows that know their ends."""
        if not isinstance(node, (FrameSource, EventsSource)) or node.time is None:
            return node
        frame = Stream(node).collect().sort("start", maintain_order=True)
        made = sq.from_frame(frame, start="start", end="end").plan
        self._frames[id(made)] = frame
        return made

    def frames(self) -> list[pl.DataFrame]:
        return [self._frames[id(node)] for node in self.nodes]

    def query(self, *inputs: ShardedStream) -> ShardedStream:
        """Return the query over these inputs, moved as the planner sees fit."""
        cluster = inputs[0]._cluster
        sharded = parallelise(self.stream.plan, inputs[0].layout, cluster.layout(1))
        live = {}
        for node, item in zip(self.nodes, inputs, strict=True):
            assert isinstance(item.plan, Split)
            live[id(node)] = item.plan.parent
        return ShardedStream(cluster, substitute(sharded, lambda node: live.get(id(node))))


def run_live(stream: Stream, emit: str, cut: Cut) -> pl.DataFrame:
    """Run a query over its rows in random epochs; return the rows that the sink was given."""
    live = AsLive(stream, cut.stored)
    random = Random(cut.seed)
    if cut.begins:
        frames = live.frames()
        counts = [random.randint(0, frame.height) for frame in frames]
        with TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
            stored = [frame.head(count) for frame, count in zip(frames, counts, strict=True)]
            rest = [frame.tail(-count) if count else frame for frame, count in zip(frames, counts, strict=True)]
            with sq.local(cores=1) as cluster:
                streams = [cluster.from_frame(item, start="start", end="end", shards=cut.shards) for item in stored]
                dataset = live.query(*streams).to_storage(Path(folder) / "ds", keep_state=True)
            final = pl.concat([pl.read_parquet(path) for path in dataset.paths])
            given = _run_epochs(live, rest, emit, cut, random, dataset)
            return pl.concat([final, given]) if given.width else final
    return _run_epochs(live, live.frames(), emit, cut, random)


def _run_epochs(
    live: AsLive, frames: list[pl.DataFrame], emit: str, cut: Cut, random: Random, begin: Any = None
) -> pl.DataFrame:
    inputs: dict[str, Scripted] = {}
    parts: dict[str, list[tuple[int, pl.DataFrame]]] = {}
    for number, frame in enumerate(frames):
        name = f"in{number}"
        options: dict[str, Any] = {"end": "end", "partitions": 3, "idle_after": None}
        if cut.waits:
            unit = live.nodes[number].time
            assert unit is not None
            options["disorder"] = sq.drop(wait=LONG[unit.unit or "1"])
            order = list(range(frame.height))
            random.shuffle(order)
            frame = frame[order]
        inputs[name] = scripted(frame.schema, start="start", **options)
        parts[name] = _cut(frame, random)
    grows_at = random.randint(1, 3) if cut.grows > 1 else 0
    with LiveTest(live.query, inputs, shards=cut.shards, emit=emit, bootstrap=begin) as test:
        while any(parts.values()):
            for name in random.sample(sorted(parts), random.randint(1, len(parts))):
                for partition, part in _taken(parts[name], random):
                    test.push(name, part, partition=partition)
            test.step()
            grows_at -= 1
            if not grows_at or (grows_at > 0 and not any(parts.values())):
                test.restart(shards=cut.shards * cut.grows)
                grows_at = 0
            if cut.restarts and random.random() < 0.3:
                test.restart()
        test.complete()
        return test.answer()


def cut_rows(frame: pl.DataFrame, random: Random) -> list[pl.DataFrame]:
    """Return the rows in pieces, of which some may be empty."""
    inner = random.choices(range(frame.height + 1), k=random.randint(0, 4))
    return [frame.slice(low, high - low) for low, high in pairwise([0, *sorted(inner), frame.height])]


def _cut(frame: pl.DataFrame, random: Random) -> list[tuple[int, pl.DataFrame]]:
    return [(random.randrange(3), part) for part in cut_rows(frame, random)]


def _taken(parts: list[tuple[int, pl.DataFrame]], random: Random) -> list[tuple[int, pl.DataFrame]]:
    """Take away what comes in one epoch."""
    count = random.randint(1, 2)
    now = parts[:count]
    del parts[:count]
    return now


def assert_live_gives(stream: Stream, emit: str, cut: Cut, expected: pl.DataFrame, **tolerance: Any) -> None:
    """Compare the folded answer of all epochs with that of one run."""
    assert_folded(run_live(stream, emit, cut), emit, expected, **tolerance)


def assert_folded(found: pl.DataFrame, emit: str, expected: pl.DataFrame, **tolerance: Any) -> None:
    """Compare what a sink was given with the answer of one run."""
    if emit == "closed":
        assert_same_events(found if found.width else expected.clear(), expected, **tolerance)
    else:
        assert net(found.rows()) == net(as_changes(expected))


def as_changes(answer: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Return closed rows as changes: time, diff, payload."""
    rows = answer.rows()
    ended = [(end, -1, *payload) for _, end, *payload in rows if end is not None]
    return [(start, 1, *payload) for start, _, *payload in rows] + ended


def net(changes: list[tuple[Any, ...]]) -> Counter[Any]:
    """Return (time, payload) → the sum of diffs, where it is not zero; floats count by their first digits."""
    total: Counter[Any] = Counter()
    for time, diff, *payload in changes:
        total[time, _shown(payload)] += diff
    return Counter({key: count for key, count in total.items() if count})


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value + 0.0:.6g}"
    if isinstance(value, (list, tuple, pl.Series)):
        return tuple(_shown(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _shown(item)) for name, item in value.items())
    return value
