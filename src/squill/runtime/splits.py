"""A stored source cut into the parts that shards read.

What shards read side by side should be of about the same time: their rows are merged by time, through bounded
queues, and a shard whose rows are all later than another's would wait for it. So a source is cut into blocks, and
these are dealt out like cards. Cuts depend on the source alone: a task that is tried again reads what it read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import polars as pl

from squill.errors import InternalError, PlanError
from squill.plan.fragments import Fragment, ShardedPlan, sources_of
from squill.plan.node import Node
from squill.plan.nodes import EventsSource, FilePart, FileSource, FrameSource, Source
from squill.plan.nodes.live import LiveSource
from squill.plan.nodes.movement import ShardInput
from squill.plan.nodes.progress import ProgressSource
from squill.plan.rebuild import substitute
from squill.plan.stages import Stage
from squill.runtime.file_splits import split_files
from squill.runtime.hosts import HostsOf, Nearby
from squill.runtime.packed_keys import check_packed_files, check_packed_frame
from squill.runtime.progress_splits import split_progress
from squill.runtime.shares import dealt, neighbours, split_rows
from squill.runtime.sorted_borders import check_sorted_frame

__all__ = [
    "BLOCK_ROWS",
    "key_begin",
    "plan_without_rows",
    "splits_of",
    "splits_of_fragment",
    "stage_without_rows",
    "without_rows",
]

BLOCK_ROWS = 524_288
"""A block of a frame has at most so many rows; more only where equal keys must stay together."""


def splits_of(source: Source, shards: int, nearby: Nearby | None = None, cores: int | None = None) -> list[Source]:
    """Return the parts of a stored source, one per shard; some may be empty. Machines read what is `nearby`.

    Shards wait for each other; if `cores` are told, only those of a machine, which has so many.
    """
    if isinstance(source, LiveSource):
        raise PlanError(
            f"the source {source.label!r} is live: it has no end to collect up to",
            "start(sink) the plan; start(sink, until_now=True) takes what is there now.",
        )
    if isinstance(source, FrameSource) and source.stored is not None and source.stored.shards == shards:
        bounds = list(accumulate(source.stored.rows, initial=0))
        return [_part_of_frame(source, [(low, high)]) for low, high in pairwise(bounds)]
    if isinstance(source, FrameSource):
        return [_part_of_frame(source, ranges) for ranges in _ranges_of_frame(source, shards)]
    if isinstance(source, FileSource) and source.stored is not None and source.stored.shards == shards:
        owned = list(zip(source.paths, source.stored.shard_of, strict=True))
        paths_of = [[path for path, owner in owned if owner == shard] for shard in range(shards)]
        check_packed_files(source, paths_of)
        parts_of = [list(map(FilePart, paths)) for paths in paths_of]
        return [_part_of_files(source, parts, nearby) for parts in parts_of]
    if isinstance(source, FileSource):
        return [_part_of_files(source, parts, nearby) for parts in split_files(source, shards, nearby, cores)]
    if isinstance(source, ProgressSource):
        return split_progress(source, _ranges_of_frame, shards)
    if isinstance(source, EventsSource) and shards == 1:
        return [source]
    raise InternalError(f"{source.name} cannot be split")


def splits_of_fragment(
    fragment: Fragment, hosts_of: HostsOf | None = None, *, machines_wait: bool = True
) -> Iterator[tuple[tuple[int, int], list[Source]]]:
    """Yield the parts of each stored source of a fragment, one per shard, by (fragment, leaf).

    `machines_wait` says whether shards of one wait for what those of another send.
    """
    cores = None if machines_wait else fragment.layout.cores
    nearby = None if hosts_of is None else Nearby(layout=fragment.layout, hosts_of=hosts_of)
    for leaf, source in enumerate(sources_of(fragment.root)):
        if not isinstance(source, ShardInput):
            yield (fragment.number, leaf), splits_of(source, fragment.layout.shards, nearby, cores)


def without_rows(source: Source) -> Source:
    """Return the source as every task may have it: the rows of a frame go only to who reads them."""
    return replace(source, frame=source.frame.clear()) if isinstance(source, FrameSource) else source


def stage_without_rows(stage: Stage) -> Stage:
    """Return the stage as every task may have it."""
    return replace(stage, fragments=tuple(map(_bare, stage.fragments)))


def plan_without_rows(plan: ShardedPlan) -> ShardedPlan:
    """Return the plan without the rows of its frames."""
    return ShardedPlan(fragments=tuple(map(_bare, plan.fragments)))


def _bare(fragment: Fragment) -> Fragment:
    def bare(node: Node) -> Node | None:
        return without_rows(node) if isinstance(node, FrameSource) else None

    return replace(fragment, root=substitute(fragment.root, bare))


def _part_of_frame(source: FrameSource, ranges: Sequence[tuple[int, int]]) -> FrameSource:
    slices = [source.frame[low:high] for low, high in ranges] or [source.frame.clear()]
    frame = slices[0] if len(slices) == 1 else pl.concat(slices, rechunk=False)
    blocks = tuple((low, high - low) for low, high in ranges)
    return replace(source, frame=frame, blocks=blocks, stored=None)


def _ranges_of_frame(source: FrameSource, shards: int) -> list[list[tuple[int, int]]]:
    """Return the ranges of rows of each shard."""
    rows = source.frame.height
    # Rows without times wait for nobody, and stay in order when each shard has one range.
    turns = 1 if source.lifetime is None else max(1, -(-rows // (shards * BLOCK_ROWS)))
    blocks = split_rows(rows, shards * turns)
    if not source.promises.packed:
        dealt_out = [blocks[shard::shards] for shard in range(shards)]
    else:
        check_packed_frame(source)
        cuts = sorted({0, rows, *(key_begin(source.frame, source.promises.packed, low) for low, _ in blocks)})
        blocks = list(pairwise(cuts))
        sizes = [high - low for low, high in blocks]
        order = neighbours(sizes, shards) if turns == 1 else dealt(sizes, shards)
        dealt_out = [[blocks[number] for number in numbers] for numbers in order]
    check_sorted_frame(source, [low for low, _ in blocks])
    return [[(low, high) for low, high in ranges if low < high] for ranges in dealt_out]


def key_begin(frame: pl.DataFrame, keys: Sequence[str], row: int) -> int:
    """Return the first row from `row` on whose key is not that of the row before; the end when there is none.

    Examples
    --------
    >>> frame = pl.DataFrame({"k": ["a", "a", None, None, "b"]})
    >>> [key_begin(frame, ["k"], row) for row in range(5)]
    [0, 2, 2, 4, 4]
    """
    if row == 0:
        return 0
    other = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in keys)
    size = 1_024
    while row < frame.height:
        changes = frame.select(keys).slice(row - 1, size).select(other).to_series()[1:]
        first = changes.arg_max() if changes.any() else None
        if first is not None:
            return row + first
        row, size = row + size - 1, 4 * size
    return frame.height


def _part_of_files(source: FileSource, parts: Sequence[FilePart], nearby: Nearby | None) -> FileSource:
    paths = tuple(dict.fromkeys(part.path for part in parts))
    if nearby is not None:
        parts = [replace(part, hosts=tuple(nearby.hosts_of(part.path))) for part in parts]
    return replace(source, paths=paths, parts=tuple(parts), stored=None)
