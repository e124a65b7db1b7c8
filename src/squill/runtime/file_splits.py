"""Which parts of which files each shard reads.

Parts that can keep a row of the filter are weighed by the bytes of the columns that are read, put in order of
their earliest time, and dealt out. Machines that do not wait for each other get several neighbouring parts at a time:
what is read at once is read faster, and rows of one time are on one of them. Files of a packed source are not cut, and
neighbours that share a key stay together. Rows without times stay in order: a shard has neighbouring parts. Where it is
known which hosts have a file, parts that are dealt out go to machines that read from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import polars as pl

from squill.engine.file_ranges import batch_parts, line_parts
from squill.engine.row_groups import RowGroups, joined_groups, row_groups
from squill.plan.build.files import unreadable
from squill.plan.build.folder_columns import file_rows, paths_to_read
from squill.plan.build.locations import file_size, read_errors
from squill.plan.layout import Layout
from squill.plan.nodes import FilePart, FileSource
from squill.runtime.hosts import Nearby, dealt_by_host
from squill.runtime.packed_keys import check_packed_files
from squill.runtime.shares import dealt, neighbours
from squill.runtime.sorted_borders import check_sorted_files

__all__ = ["PART_ROWS", "split_files"]

PART_ROWS = 262_144
"""Row groups smaller than this are read together, where there are enough of them."""

PART_BYTES = 8 << 20
LEAST_BYTES = 1 << 16
"""Of files that are cut by bytes: a range is read as a whole, and not worth it when it is smaller."""
PARTS_PER_SHARD = 4
"""So many balance well enough."""

TURNS = 4
"""So often neighbouring parts are dealt out to machines: where a filter keeps the rows of one time, all have some."""

Weighed = tuple[FilePart, int]
"""A part and the bytes that are read of it."""


def split_files(
    source: FileSource, shards: int, nearby: Nearby | None = None, cores: int | None = None
) -> list[list[FilePart]]:
    """Return the parts of each shard; machines of so many `cores`, if told, do not wait for each other."""
    layout = Layout(shards=shards, cores=cores or shards)
    if source.promises.packed:
        whole = _whole_files(source, shards)
        check_packed_files(source, [[part.path for part in parts] for parts in whole])
        if shards > 1:
            check_sorted_files(source, [part for parts in whole for part in parts])
        return whole
    parts = _parts(source, shards)
    if source.lifetime is not None and not source.promises.sorted_by:
        parts.sort(key=lambda item: item[0].low)
    if shards > 1:
        check_sorted_files(source, [part for part, _ in parts])
    chosen = _chosen(source, parts, layout, nearby)
    found = [[parts[number][0] for number in numbers] for numbers in chosen]
    has_neighbours = source.lifetime is None or layout.machines > 1
    return [_joined(mine) for mine in found] if has_neighbours and source.format == "parquet" else found


def _chosen(source: FileSource, parts: Sequence[Weighed], layout: Layout, nearby: Nearby | None) -> list[list[int]]:
    """Return which parts each shard gets."""
    sizes = [size for _, size in parts]
    if source.lifetime is None:
        return neighbours(sizes, layout.shards)
    hosts = [nearby.hosts_of(part.path) for part, _ in parts] if nearby is not None else []
    if nearby is not None and any(hosts):
        return dealt_by_host(sizes, hosts, nearby.layout)
    return dealt(sizes, layout.shards) if layout.machines == 1 else _dealt_to_machines(sizes, layout)


def _dealt_to_machines(sizes: Sequence[int], layout: Layout) -> list[list[int]]:
    """Return which items each shard gets: neighbours go to a machine, which deals them out to its shards.

    Examples
    --------
    >>> _dealt_to_machines([1] * 16, Layout(shards=2))
    [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]
    """
    stretches = neighbours(sizes, TURNS * layout.shards)
    chosen: list[list[int]] = []
    for machine in range(layout.machines):
        shards = layout.shards_of(machine)  # the last machine may have fewer
        turns = (stretches[turn * layout.shards + shard] for turn in range(TURNS) for shard in shards)
        mine = [number for stretch in turns for number in stretch]
        chosen += [[mine[at] for at in places] for places in dealt([sizes[number] for number in mine], len(shards))]
    return chosen


def _joined(parts: Sequence[FilePart]) -> list[FilePart]:
    """Return the parts, those that follow each other in a file as one."""
    joined: list[FilePart] = []
    for part in parts:
        if joined and joined[-1].is_followed_by(part):
            joined[-1] = joined[-1].joined(part)
        else:
            joined.append(part)
    return joined


def _parts(source: FileSource, shards: int) -> list[Weighed]:
    """Return the parts of all files, in the order of the files."""
    if source.format != "parquet":
        paths = paths_to_read(source)
        total = sum(file_size(path) for path in paths)
        part_bytes = min(PART_BYTES, max(LEAST_BYTES, total // (PARTS_PER_SHARD * shards)))
        return [part for path in paths for part in _parts_of_bytes(path, source, part_bytes)]
    groups_of = cache(lambda path: row_groups(path, source, source.needed))
    groups = [(path, groups_of(path)) for path in paths_to_read(source)]  # which may be one file several times
    total = sum(group.rows for _, found in groups for group in found or ())
    rows = min(PART_ROWS, total // (PARTS_PER_SHARD * shards))
    return [part for path, found in groups for part in _parts_of_groups(path, found, rows)]


def _parts_of_bytes(path: str, source: FileSource, part_bytes: int) -> list[Weighed]:
    if source.format == "ipc":
        return batch_parts(path, source.file_columns, part_bytes)
    return line_parts(path, source.format, part_bytes)


def _parts_of_groups(path: str, groups: Sequence[RowGroups] | None, rows: int) -> list[Weighed]:
    if groups is None:
        return [_whole(path)]
    return [(FilePart(path, item.first, item.rows, item.low), item.size) for item in joined_groups(groups, rows)]


def _whole(path: str) -> Weighed:
    return FilePart(path), file_size(path)


def _whole_files(source: FileSource, shards: int) -> list[list[FilePart]]:
    """Return whole files; those that the rows of one key go on over are together."""
    chains: list[list[Weighed]] = []
    last: pl.DataFrame | None = None
    for path in paths_to_read(source):
        first, final = _border_keys(source, path)
        if chains and (not first.height or (last is not None and first.equals(last))):
            chains[-1].append(_whole(path))
        else:
            chains.append([_whole(path)])
        last = final if final.height else last
    chosen = neighbours([sum(size for _, size in chain) for chain in chains], shards)
    return [[part for number in numbers for part, _ in chains[number]] for numbers in chosen]


def _border_keys(source: FileSource, path: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the packed columns of the first and of the last row."""
    try:
        keys = file_rows(source, path).select(source.promises.packed)
        return keys.head(1).collect(), keys.tail(1).collect()
    except read_errors() as error:
        raise unreadable(path, source.format, error) from error
