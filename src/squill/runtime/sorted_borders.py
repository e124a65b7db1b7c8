"""Whether rows that are promised to be sorted are so from one part to the next, where shards read the parts.

Each shard sees for itself that the rows of its own parts keep the promise. The borders between parts of several shards
are looked at where the parts are dealt out: what parquet says of its row groups, and where that leaves room for doubt
two rows of each part; `trust=True` spares it. No answer rests on it: within a shard order is used, and checked, between
shards rows are merged by time or stand in no order.

Of files only parquet is looked at, since the last row of a range of text is found by reading all of it, and only where
no filter was pushed down, as rows that it drops break no promise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import polars as pl

from squill.engine.promises import PromiseCheck
from squill.engine.row_groups import bounds_of_rows
from squill.plan.build.files import unreadable
from squill.plan.build.folder_columns import file_rows
from squill.plan.build.locations import read_errors
from squill.plan.nodes import FilePart, FileSource, FrameSource, Promises, Source

__all__ = ["check_sorted_files", "check_sorted_frame"]


def check_sorted_frame(source: FrameSource, begins: Iterable[int]) -> None:
    """Raise for a row with which a part of the frame `begins`, and which is below the row before."""
    if _is_unchecked(source):
        return
    for row in begins:
        if 0 < row < source.frame.height:
            rows = source.frame.slice(row - 1, 2).rechunk()
            _order_of(source)({series.name: series for series in rows.get_columns()}, row - 1, source.label)


def check_sorted_files(source: FileSource, parts: Sequence[FilePart]) -> None:
    """Raise for a first or last row of a part that is below those of the parts before it, as the files stand."""
    if _is_unchecked(source) or source.predicate is not None or source.format != "parquet" or len(parts) < 2:
        return
    if not _ascend_by_statistics(source, parts):
        _check_rows(source, parts)


def _ascend_by_statistics(source: FileSource, parts: Sequence[FilePart]) -> bool:
    """Whether the files say at their ends that parts follow each other: to read a row takes some milliseconds."""
    column, *others = source.promises.sorted_by
    groups_of = cache(lambda path: bounds_of_rows(path, source, column))
    highest: int | str | None = None
    for part in parts:
        end = sys.maxsize if part.size is None else part.first + part.size
        told = groups_of(part.path)
        if told is None:
            return False
        groups = [bounds for rows, bounds in told if rows and part.first <= rows.start < end]
        if not groups:
            continue
        if groups[0] is None or groups[-1] is None:
            return False
        lowest = groups[0][0]
        if highest is not None and not (
            highest < lowest or (highest == lowest and isinstance(lowest, int) and not others)  # type: ignore[operator]
        ):
            return False
        highest = groups[-1][1]
    return True


def _check_rows(source: FileSource, parts: Sequence[FilePart]) -> None:
    check = _order_of(source)
    for part in parts:
        rows = file_rows(source, part.path).select(source.promises.sorted_by)
        try:
            size = rows.select(pl.len()).collect().item() - part.first if part.size is None else part.size
            ends = pl.collect_all([rows.slice(part.first, 1), rows.slice(part.first + size - 1, 1)] if size else [])
        except read_errors() as error:
            raise unreadable(part.path, source.format, error) from error
        for number, row in zip((part.first, part.first + size - 1), ends, strict=False):
            check({series.name: series for series in row.get_columns()}, number, part.path)


def _is_unchecked(source: Source) -> bool:
    return source.promises.trust or not source.promises.sorted_by


def _order_of(source: Source) -> PromiseCheck:
    return PromiseCheck(replace(source, promises=Promises(sorted_by=source.promises.sorted_by)))
