"""Which rows of a progressive input each shard reads; their numbers are the same on any number of shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from squill.engine.progress.ingress import ready_to_read
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.nodes.progress import NumberedPart, ProgressSource
from squill.runtime.file_splits import split_files
from squill.runtime.shares import neighbours

__all__ = ["split_progress"]

Ranges = Callable[[FrameSource, int], Sequence[Sequence[tuple[int, int]]]]


def split_progress(source: ProgressSource, ranges_of: Ranges, shards: int) -> list[Source]:
    """Return the parts of each shard: ranges of a frame, whole splits of files."""
    ready = ready_to_read(source)
    inner, splits = source.source, ready.parts or ()
    if source.in_order:
        parts = _in_order(inner, splits, shards)
    elif isinstance(inner, FrameSource):
        rows = inner.frame.height
        parts = [
            [NumberedPart(0, low, high - low, length=rows) for low, high in ranges]
            for ranges in ranges_of(inner, shards)
        ]
    else:
        parts = _whole_splits(inner, splits, shards)
    return [replace(ready, parts=tuple(own), reader=shard) for shard, own in enumerate(parts)]


def _in_order(inner: Source, splits: Sequence[NumberedPart], shards: int) -> list[list[NumberedPart]]:
    """Return the files of each shard, of as many as wrote them; else row groups in turn: all have every step."""
    assert isinstance(inner, FileSource)
    assert inner.stored is not None
    if inner.stored.shards == shards:
        owner = dict(zip(inner.paths, inner.stored.shard_of, strict=True))
        return [[split for split in splits if owner[split.path or ""] == shard] for shard in range(shards)]
    return [list(splits[shard::shards]) for shard in range(shards)]


def _whole_splits(inner: Source, splits: Sequence[NumberedPart], shards: int) -> list[list[NumberedPart]]:
    assert isinstance(inner, FileSource)
    if inner.promises.packed:
        # Keys that go on in the next file stay on one shard.
        owner = {part.path: shard for shard, own in enumerate(split_files(inner, shards)) for part in own}
        return [[split for split in splits if owner[split.path or ""] == shard] for shard in range(shards)]
    chosen = neighbours([split.length or 1 for split in splits], shards)
    return [[splits[number] for number in numbers] for numbers in chosen]
