"""The splits of an input, over which its rows are numbered: the same whoever reads them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from squill.engine.row_groups import row_groups
from squill.plan.assignment import Assignment, Exponential, Fractions, Rows, Stratified
from squill.plan.build.folder_columns import file_rows
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.nodes.progress import NumberedPart

__all__ = ["numbered_splits"]

NUMBERED = (Exponential, Rows, Stratified)
"""What goes by the numbers of rows, to which all splits add."""


def numbered_splits(source: Source, assignment: Assignment) -> list[NumberedPart]:
    """Return all splits of a stored source, in order: row groups of parquet files, else whole files; one of a frame."""
    if isinstance(source, FrameSource):
        rows = source.frame.height
        return [NumberedPart(0, 0, rows, length=rows)]
    assert isinstance(source, FileSource)
    pieces: list[NumberedPart] = []
    for path in source.paths:
        # A filter may spare the reading of row groups, but not their numbers.
        groups = row_groups(path, replace(source, predicate=None), ()) if source.format == "parquet" else None
        if groups is None:
            pieces.append(NumberedPart(len(pieces), path=path, length=_length(source, path, assignment)))
        else:
            pieces += [
                NumberedPart(number, 0, group.rows, path=path, offset=group.first, length=group.rows)
                for number, group in enumerate(groups, start=len(pieces))
            ]
    return pieces


def _length(source: FileSource, path: str, assignment: Assignment) -> int | None:
    """Return how many rows a file has, which does not say so itself, where the assignment must know it before."""
    if not (isinstance(assignment, Fractions) or (isinstance(assignment, NUMBERED) and len(source.paths) > 1)):
        return None
    return int(file_rows(source, path).select(pl.len()).collect().item())
