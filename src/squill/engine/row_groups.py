"""What a parquet file says of its row groups: how large they are, how early, and whether a filter can keep a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from squill.engine.file_ranges import rows_told
from squill.plan.arrow_frames import from_arrow
from squill.plan.build.files import unreadable
from squill.plan.build.locations import open_file, read_errors
from squill.plan.build.unchanged_files import KeptByFile
from squill.plan.expression_text import conditions_of, deserialise, dump_tree, load_tree
from squill.plan.expressions import Expression
from squill.plan.nodes import FileSource
from squill.plan.schema import Schema
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["RowGroups", "bounds_of_rows", "joined_groups", "known_rows", "row_groups"]

MIRRORED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
Bools = npt.NDArray[np.bool_]
Bounds = tuple[int, int] | tuple[str, str]
Comparison = tuple[str, str, pl.Expr, pl.DataType]
"""A column, an operation, and the constant that it is compared with, and of which type that is."""
KEPT_BYTES = 32 << 20
"""So much of what files say of themselves is kept, counted as they have written it."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Neighbouring row groups of a file: rows, the bytes of the columns needed, and the earliest time."""

    first: int
    rows: int
    size: int
    low: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a file says at its end: the place of each column, and the types, where Arrow has one for all columns."""

    metadata: pq.FileMetaData
    places: dict[str, int]
    types: Schema

    def place_of(self, column: str | None, columns: Schema) -> int | None:
        """Return where the bounds of a column are; None where the file has it of another type than its input.

        It was written anew since the query was made, and its bounds say nothing: who reads it says what is wrong.
        """
        if column is None or self.types.get(column) != columns[column]:
            return None
        return self.places.get(column)


def row_groups(path: str, source: FileSource, needed: Sequence[str]) -> list[RowGroups] | None:
    """Return the row groups in which the source's filter may keep a row; None when the file does not tell."""
    told = _told_by(path)
    if told is None:
        return None
    metadata, places = told.metadata, told.places
    read = [
        place for path, place in places.items() if any(path == name or path.startswith(f"{name}.") for name in needed)
    ]
    start = None if source.lifetime is None else told.place_of(source.lifetime.start.source_column, source.columns)
    keep = _may_match(source.predicate, source.columns, told)
    groups: list[RowGroups] = []
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if keep[number] and group.num_rows:
            size = sum(group.column(place).total_compressed_size for place in read)
            low = MINUS_INFINITY if start is None else _earliest(group.column(start))
            groups.append(RowGroups(first, group.num_rows, size, low))
        first += group.num_rows
    return groups


def joined_groups(groups: Sequence[RowGroups], rows: int) -> list[RowGroups]:
    """Return the groups with neighbours joined while they are smaller than `rows`."""
    joined: list[RowGroups] = []
    for group in groups:
        last = joined[-1] if joined else None
        if last is None or last.rows >= rows or last.first + last.rows != group.first:
            joined.append(group)
        else:
            size, low = last.size + group.size, min(last.low, group.low)
            joined[-1] = RowGroups(last.first, last.rows + group.rows, size, low)
    return joined


def bounds_of_rows(path: str, source: FileSource, column: str) -> list[tuple[range, Bounds | None]] | None:
    """Return the rows of each row group and, where the file says it and none is null, the column's least and greatest.

    Of text they may be less and greater than any value. None where the file does not tell, or has another order than
    Polars, as of the values of an Enum.
    """
    told = _told_by(path) if _is_comparable(source.columns[column]) else None
    if told is None:
        return None
    metadata, place = told.metadata, told.place_of(column, source.columns)
    found: list[tuple[range, Bounds | None]] = []
    first = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        bounds = None
        if place is not None:
            chunk = group.column(place)
            bounds = _bounds(chunk)
            if bounds is not None and chunk.statistics.null_count != 0:
                bounds = None
        found.append((range(first, first + group.num_rows), bounds))
        first += group.num_rows
    return found


def known_rows(path: str) -> int | None:
    """Return how many rows a file has; None when it does not tell."""
    told = _told_by(path)
    return None if told is None else int(told.metadata.num_rows)


def _bytes_told(told: Told | None) -> int:
    return 0 if told is None else told.metadata.serialized_size


def _read_told(path: str) -> Told | None:
    """Return what a file says at its end; None where only Polars can read it, or nobody.

    Polars then says what is wrong with it, if anything is.
    """
    try:
        with open_file(path) as file:
            metadata = pq.read_metadata(file)
    except read_errors():
        return None
    try:
        rows_told(metadata)
    except OSError as error:
        raise unreadable(path, "parquet", error) from error
    leaves = [metadata.schema.column(place) for place in range(metadata.num_columns)]
    # A column called "a.b" comes last: it has the path of the field b of a column a.
    in_order = sorted(range(len(leaves)), key=lambda place: leaves[place].name == leaves[place].path)
    return Told(metadata, {leaves[place].path: place for place in in_order}, _types(metadata))


def _types(metadata: pq.FileMetaData) -> Schema:
    try:
        return Schema(from_arrow(metadata.schema.to_arrow_schema().empty_table()).schema)
    except (pa.ArrowException, pl.exceptions.PolarsError):
        return Schema()


_told_by = KeptByFile(_read_told, KEPT_BYTES, _bytes_told)


def _earliest(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the least time of a row group in ticks, or minus infinity when the file does not say."""
    bounds = _bounds(chunk)
    if bounds is not None and chunk.statistics.null_count != 0:
        return MINUS_INFINITY  # that is what a null start of a stored answer means
    if bounds is None or not isinstance(bounds[0], int) or bounds[0] >= INFINITY:
        return MINUS_INFINITY
    return max(bounds[0], MINUS_INFINITY)


def _bounds(chunk: pq.ColumnChunkMetaData) -> Bounds | None:
    """Return the least and the greatest value; of times their ticks. Floats have NaN, and tell nothing."""
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    logical = statistics.logical_type.type
    if chunk.physical_type in ("INT32", "INT64"):
        # The physical value is the number of ticks, except that unsigned numbers are stored as signed ones.
        whole = logical == "INT"
        least, greatest = (statistics.min, statistics.max) if whole else (statistics.min_raw, statistics.max_raw)
        return (least, greatest) if isinstance(least, int) and isinstance(greatest, int) else None
    if chunk.physical_type == "BYTE_ARRAY" and logical == "STRING":
        try:
            return statistics.min, statistics.max
        except UnicodeDecodeError:  # a cut in the middle of a letter, or text that is none
            return None
    return None


def _may_match(predicate: Expression | None, columns: Schema, told: Told) -> Bools:
    """Return per row group False where a comparison with a constant shows that the filter keeps no row of it."""
    metadata = told.metadata
    keep = np.ones(metadata.num_row_groups, np.bool_)
    if predicate is None:
        return keep
    for column, operation, constant, constant_type in _comparisons(predicate.serialised):
        place = told.place_of(column, columns)
        if place is None or not _are_comparable(columns[column], constant_type):
            continue
        found = [_bounds(metadata.row_group(group).column(place)) for group in range(len(keep))]
        lows = [None if pair is None else pair[0] for pair in found]
        highs = [None if pair is None else pair[1] for pair in found]
        try:
            low, high = (pl.Series(values).cast(columns[column]) for values in (lows, highs))
            bounds = pl.DataFrame([low.alias("low"), high.alias("high")])
            possible = bounds.select(_possible(operation, constant).fill_null(True)).to_series()
        except pl.exceptions.PolarsError:
            continue  # reading says what is wrong with the comparison
        keep &= possible.to_numpy()
    return keep


def _is_comparable(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or isinstance(dtype, (pl.Date, pl.Datetime, pl.String))


def _are_comparable(column: pl.DataType, constant: pl.DataType) -> bool:
    """Whether values are compared with the constant in the order that bounds are in: not, as text is with an Enum."""
    if not _is_comparable(column):
        return False
    if column.is_integer():
        return constant.is_numeric()
    return isinstance(constant, pl.String if isinstance(column, pl.String) else (pl.Date, pl.Datetime))


def _possible(operation: str, constant: pl.Expr) -> pl.Expr:
    low, high = pl.col("low"), pl.col("high")
    match operation:
        case "Lt":
            return low < constant
        case "LtEq":
            return low <= constant
        case "Gt":
            return high > constant
        case "GtEq":
            return high >= constant
    return (low <= constant) & (high >= constant)


@lru_cache(maxsize=64)
def _comparisons(predicate: str) -> tuple[Comparison, ...]:
    """Return what the filter compares with constants, in conditions that must all hold; the same for all files."""
    found = filter(None, map(_comparison, conditions_of(load_tree(predicate))))
    return tuple((*comparison, pl.select(comparison[2]).to_series().dtype) for comparison in found)


def _comparison(tree: object) -> tuple[str, str, pl.Expr] | None:
    """Return (column, operation, constant), or None where the condition compares nothing with a constant."""
    match tree:
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": {"Literal": literal}}}:
            if op in MIRRORED and _is_single(literal):
                return name, op, _constant(literal)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": str(op), "right": {"Column": str(name)}}}:
            if op in MIRRORED and _is_single(literal):
                return name, MIRRORED[op], _constant(literal)
    return None


def _is_single(literal: object) -> bool:
    return isinstance(literal, dict) and next(iter(literal)) in ("Dyn", "Scalar")


def _constant(literal: object) -> pl.Expr:
    return deserialise(dump_tree({"Literal": literal}))
