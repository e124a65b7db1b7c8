"""Keys dealt out evenly: what a process that has all shards can know before the first row moves.

The plain hash gives the shard that has the heaviest keys too much to do: of 300,000 keys by Zipf's law the first has
7.6 % of all rows, and one of two shards 57 %. So some rows of each source are looked at, and buckets of keys are dealt
to the shards by the rows that they have.

A plan takes it that rows moved by the same columns to the same layout lie alike, be it for two inputs that meet or for
a movement that is left out. So there is one deal for each such *claim*, whatever the scope of the movement, and it
depends on the sources alone. Keys that match may be called differently on either side: claims whose rows meet in a
fragment share one deal. Where somebody relies on the plain hash there is none: datasets that are read with their
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
from squill.exchange.deal import Deal, bucket_count, even_deal, weights_of
from squill.plan.fragments import Channel, Fragment, ShardedPlan, sources_of
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
SAMPLE_ROWS = 8_192
"""Of each source so many samples of so many rows are looked at, spread over it: 16,384 rows of keys that are all alike
leave shards that differ by a thousandth."""

SIDE_BY_SIDE = 8
"""So many sources in files are looked at at once."""

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
    looks: list[_Look] = []
    for channel in plan.channels.values():
        sender, claim = senders[channel.sender], _claim_of(channel)
        # State may be large, and a user's function is to see each row once.
        if claim is not None and sender.reads_row_by_row:
            looks.append(_Look(sender, claim, splits[sender.number, 0]))
    _take(looks)
    deals: dict[Claim, Deal] = {}
    for claims in _meeting_claims(plan):
        counts = [known for look in looks if look.claim in claims and (known := look.counts()) is not None]
        if counts:
            (shards,) = {layout.shards for _, layout in claims}
            deals |= dict.fromkeys(claims, even_deal(np.sum(counts, axis=0), shards))
    return deals


def _claim_of(channel: Channel) -> Claim | None:
    routing = channel.routing
    if isinstance(routing, HashRouting) and routing.keys and routing.layout.shards > 1:
        return routing.keys, routing.layout
    return None


def _meeting_claims(plan: ShardedPlan) -> list[set[Claim]]:
    """Return all claims, those together that rows of one fragment were moved by."""
    channels = plan.channels
    groups: list[set[Claim]] = []
    for fragment in plan.fragments:
        moved = (_claim_of(channels[number]) for number in fragment.inputs if number is not None)
        met = {claim for claim in moved if claim is not None}
        apart = [group for group in groups if not group & met]
        groups = [*apart, met.union(*(group for group in groups if group & met))] if met else groups
    return groups


def _take(looks: Sequence[_Look]) -> None:
    """Look at all samples; files are waited for, and to begin threads takes longer than to look at frames."""
    from_files = [look.take for look in looks if look.reads_files]
    for look in looks:
        if len(from_files) == 1 or not look.reads_files:
            look.take()
    if len(from_files) > 1:
        run_on_threads(from_files, SIDE_BY_SIDE)


def _is_placed(source: Source) -> bool:
    stored = source.stored if isinstance(source, (FileSource, FrameSource)) else None
    return stored is not None and stored.placed_by is not None


class _Look:
    """Samples of what a fragment sends; `parts` are all that it reads."""

    def __init__(self, fragment: Fragment, claim: Claim, parts: Sequence[Source]) -> None:
        self.claim = claim
        # Of files other columns are not even read.
        self._root = push_projection_into_scan(only(fragment.root, claim[0]))
        self._fragment = fragment.number
        self._parts = parts
        self._samples = [sample for number in range(SAMPLES) if (sample := _sample(parts, number)) is not None]
        self.reads_files = any(isinstance(sample, FileSource) for sample in self._samples)
        self._counts: list[Counts] = []
        self._looked_at = 0
        self._is_whole = False

    def take(self, _: Checkpoint | None = None) -> None:
        """Look at the samples, unless the first show that there is little to see; nothing may be by their place."""
        with suppress(Exception):  # the run meets it again, and says where
            for taken, sample in enumerate(self._samples, start=1):
                self._take(sample)
                if 0 < self._rows * SAMPLES < FEW_ROWS * taken:
                    return
            self._is_whole = True

    def _take(self, sample: Source) -> None:
        (source,) = sources_of(self._root)
        if isinstance(source, FileSource) and isinstance(sample, FileSource):
            sample = replace(sample, read=source.read)
        work, sink = Work(fragment=self._fragment, shard=0), _CountSink(self._root, self.claim)
        run_shard(self._root, [BatchInbox(read_split(sample))], sink, work)
        self._counts.append(sink.counts)
        self._looked_at += _rows(sample) or 0

    @property
    def _rows(self) -> float:
        return float(np.sum(self._counts))

    def counts(self) -> Counts | None:
        """Return about how many rows each bucket is going to have; None where too few were seen."""
        if not self._is_whole or self._rows < FEW_ROWS:
            return None
        total = sum(filter(None, map(_rows, self._parts)))
        return weights_of(self._counts) * (total / self._looked_at if self._looked_at else 1.0)


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
        self.counts: Counts = np.zeros(bucket_count(layout.shards))

    def push(self, batch: Batch, port: int = 0) -> None:
        buckets = hash_columns([batch.columns[name] for name in self._keys]) % np.uint64(len(self.counts))
        self.counts += np.bincount(buckets.astype(np.int64), minlength=len(self.counts))

    def advance(self, t: int, port: int = 0) -> None:
        pass
