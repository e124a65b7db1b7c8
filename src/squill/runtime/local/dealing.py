"""Keys dealt out evenly: what a process that has all shards can know before the first row moves.

The plain hash gives the shard that has the heaviest keys too much to do: of 300,000 keys by Zipf's law the first has
7.6 % of all rows, and one of two shards 57 %. So some rows of each source are looked at, and buckets of keys are dealt
to the shards by the rows that they have.

A plan takes it that rows moved by the same columns to the same layout lie alike, be it for two inputs that meet or for
a movement that is left out. So there is one deal for each such *claim*, whatever the scope of the movement, and it
depends on the sources alone. Where somebody relies on the plain hash there is none: datasets that are read with their
placement, and answers that are kept with theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from squill.engine.batch import Batch
from squill.engine.hashing import hash_columns
from squill.engine.operator import STARTS, Operator
from squill.exchange.deal import Deal, bucket_count, even_deal
from squill.plan.fragments import Fragment, ShardedPlan, sources_of
from squill.plan.layout import Layout
from squill.plan.node import Node
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.paths import is_local
from squill.plan.rewrite.push_projection_into_scan import only, push_projection_into_scan
from squill.plan.routing import HashRouting
from squill.runtime.report import Work
from squill.runtime.shard import BatchInbox, read_split, run_shard
from squill.runtime.threads import Checkpoint, run_on_threads

__all__ = ["Claim", "Deals", "deals_of"]

SAMPLES = 2
SAMPLE_ROWS = 32_768
"""Of each source so many samples of so many rows are looked at, spread over it."""

SIDE_BY_SIDE = 8
"""So many samples are looked at at once: to read one is to wait, for the file and for Polars, more than to compute."""

FEW_ROWS = 4_096
"""With fewer rows there is nothing to balance."""

Claim = tuple[tuple[str, ...], Layout]
Deals = Mapping[Claim, Deal]
Splits = Mapping[tuple[int, int], Sequence[Source]]
Counts = npt.NDArray[np.float64]


def deals_of(plan: ShardedPlan, splits: Splits) -> Deals:
    """Return the deals of the movements by hash whose rows can be sampled; the others are plain."""
    sources = [source for fragment in plan.fragments for source in sources_of(fragment.root)]
    if any(map(_is_placed, sources)):
        return {}
    senders = {fragment.number: fragment for fragment in plan.fragments}
    asked: list[tuple[Claim, int, list[_Look]]] = []
    for channel in plan.channels.values():
        routing = channel.routing
        if isinstance(routing, HashRouting) and routing.keys and routing.layout.shards > 1:
            claim = (routing.keys, routing.layout)
            asked.append((claim, channel.sender, _looks(senders[channel.sender], claim, splits)))
    run_on_threads([look.take for _, _, looks in asked for look in looks], SIDE_BY_SIDE)
    counts: dict[Claim, list[Counts]] = {}
    for claim, sender, looks in asked:
        if looks and (known := _counts(looks, splits[sender, 0])) is not None:
            counts.setdefault(claim, []).append(known)
    return {claim: even_deal(np.sum(known, axis=0), claim[1].shards) for claim, known in counts.items()}


def _is_placed(source: Source) -> bool:
    stored = source.stored if isinstance(source, (FileSource, FrameSource)) else None
    return stored is not None and stored.placed_by is not None


class _Look:
    """One sample of what a fragment sends; once taken, `sink` has counted its rows, unless it failed."""

    def __init__(self, fragment: int, root: Node, claim: Claim, sample: Source) -> None:
        self.sink = _CountSink(root, claim)
        self.looked_at = _rows(sample) or 0
        self.is_whole = False
        self._fragment = fragment
        self._sample = sample

    def take(self, _: Checkpoint) -> None:
        work = Work(fragment=self._fragment, shard=0)
        with suppress(Exception):  # the run meets it again, and says where
            run_shard(self.sink.node, [BatchInbox(read_split(self._sample))], self.sink, work)
            self.is_whole = True


def _looks(fragment: Fragment, claim: Claim, splits: Splits) -> list[_Look]:
    # State may be large, and a user's function is to see each row once.
    if not fragment.reads_row_by_row:
        return []
    parts = splits[fragment.number, 0]
    samples = [sample for number in range(SAMPLES) if (sample := _sample(parts, number)) is not None]
    if not samples:
        return []
    # Of files other columns are not even read.
    root = push_projection_into_scan(only(fragment.root, claim[0]))
    (source,) = sources_of(root)
    if isinstance(source, FileSource):
        samples = [replace(sample, read=source.read) for sample in samples if isinstance(sample, FileSource)]
    return [_Look(fragment.number, root, claim, sample) for sample in samples]


def _counts(looks: Sequence[_Look], parts: Sequence[Source]) -> Counts | None:
    """Return about how many rows each bucket is going to have, by the samples of a source of these parts."""
    if not all(look.is_whole for look in looks) or sum(look.sink.rows for look in looks) < FEW_ROWS:
        return None
    looked_at = sum(look.looked_at for look in looks)
    known: Counts = np.sum([look.sink.counts for look in looks], axis=0)
    return known * (sum(filter(None, map(_rows, parts))) / looked_at if looked_at else 1.0)


def _sample(parts: Sequence[Source], number: int) -> Source | None:
    """Return some rows of the part that is as far into all of them as the sample is among its like."""
    source = parts[len(parts) * number // SAMPLES]
    if isinstance(source, FrameSource):
        first = source.frame.height * number // SAMPLES
        return replace(source, frame=source.frame.slice(first, SAMPLE_ROWS), blocks=())
    if not isinstance(source, FileSource) or not source.parts:
        return None
    part = source.parts[len(source.parts) * number // SAMPLES]
    # Other formats, and files from afar, are read in pieces of megabytes.
    if source.format != "parquet" or not is_local(part.path):
        return None
    size = SAMPLE_ROWS if part.size is None else min(part.size, SAMPLE_ROWS)
    return replace(source, parts=(replace(part, size=size),))


def _rows(source: Source) -> int | None:
    if isinstance(source, FrameSource):
        return source.frame.height
    parts = source.parts if isinstance(source, FileSource) else None
    sizes = [part.size for part in parts or ()]
    return None if None in sizes else sum(size for size in sizes if size is not None)


class _CountSink(Operator):
    """Counts rows by bucket, and keeps none."""

    demands = STARTS

    def __init__(self, node: Node, claim: Claim) -> None:
        super().__init__(node)
        self._keys, layout = claim
        self.rows = 0
        self.counts: Counts = np.zeros(bucket_count(layout.shards))

    def push(self, batch: Batch, port: int = 0) -> None:
        buckets = hash_columns([batch.columns[name] for name in self._keys]) % np.uint64(len(self.counts))
        self.counts += np.bincount(buckets.astype(np.int64), minlength=len(self.counts))
        self.rows += len(batch)

    def advance(self, t: int, port: int = 0) -> None:
        pass
