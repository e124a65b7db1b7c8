"""Which files an input stands for, how Polars reads one, and whether it has the columns of the others."""

from __future__ import annotations

import glob
import io
import operator
import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from squill.arguments import is_one_of
from squill.errors import PlanError, SchemaChangedError, SourceReadError
from squill.plan.arrow_frames import from_arrow
from squill.plan.build.csv_times import as_text, read_times
from squill.plan.build.locations import folders_below, matching_files, open_file, read_errors, suffix_of
from squill.plan.build.unchanged_files import KeptByFile
from squill.plan.paths import is_local, path_text, unfit_text
from squill.plan.schema import Schema
from squill.wording import shortened

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMATS", "TYPED", "FoundFile", "changed_type", "common_type", "compare_columns", "expand_paths",
    "file_schema", "first_line", "format_of", "other_types", "read_stored", "scan_files", "unreadable",
    "unreadable_hint",
]  # fmt: skip

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson",
    ".arrow": "ipc", ".ipc": "ipc", ".feather": "ipc",
}  # fmt: skip
TYPED = ("parquet", "ipc")
"""Formats that store types; in the others they are guessed from the first values."""

KEPT_SCHEMAS = 4_096
"""Of so many files of each format the columns are kept."""

READ_AS: dict[type[pl.DataType], type[pl.DataType]] = {
    **dict.fromkeys((pl.Int8, pl.Int16, pl.UInt8, pl.UInt16), pl.Int64), pl.Decimal: pl.String,
}  # fmt: skip
"""Types that Polars does not read from ndjson by itself: it panics, or refuses them."""

PATHS_HINT = 'give a file, a folder, a glob like "clicks/*.parquet", or a list of these.'


class FoundFile(NamedTuple):
    """A file of an input, and the names of the folders between what the user gave and the file."""

    path: str
    folders: tuple[str, ...] = ()


def expand_paths(paths: object) -> tuple[FoundFile, ...]:
    """Return the files that paths, folders and globs stand for, in name order."""
    is_one = isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable)
    given: list[Any] = [paths] if is_one else list(paths)  # type: ignore[call-overload]
    if not given:
        raise PlanError("scan: no path is given", PATHS_HINT)
    found: list[FoundFile] = []
    for text in [path_text(item, "scan", PATHS_HINT) for item in given]:
        matches = matching_files(text, FORMATS)
        if not matches:
            unlisted = "" if is_local(text) else "; where folders are not listed, as over http, name the files"
            raise SourceReadError(
                f"scan: {text!r} matches no file",
                f"check the path; a folder is searched for files ending in {', '.join(FORMATS)}{unlisted}.",
            )
        for path in matches:
            if (wrong := unfit_text(path)) is not None:
                raise SourceReadError(f"scan: the name of {path!r} cannot be read: {wrong}", "rename the file.")
        found.extend(FoundFile(path, folders_below(text, path)) for path in matches)
    return tuple(found)


def format_of(files: Sequence[str], given: str | None) -> str:
    """Return the format of the files: the one given, or the one that all their names tell."""
    if given is not None:
        if not is_one_of(given, FORMATS.values()):
            raise PlanError(
                f"scan: format is {shortened(given)}", f"use one of {', '.join(sorted(set(FORMATS.values())))}."
            )
        return given
    formats = [_told_by_name(path) for path in files]
    if None in formats:
        raise PlanError(
            f"scan: the format of {files[formats.index(None)]!r} cannot be told from its name",
            'say format="parquet", "csv", "ndjson" or "ipc".',
        )
    other = next((number for number, found in enumerate(formats) if found != formats[0]), None)
    if other is not None:
        raise PlanError(
            f"scan: {files[0]!r} is {formats[0]}, but {files[other]!r} is {formats[other]}",
            "files of one input have one format; scan them apart and unite them with union(…).",
        )
    return str(formats[0])


def _told_by_name(path: str) -> str | None:
    """Return the format that a name tells; an address may end in options, s3://bucket/a.csv?region=…."""
    names = [path] if is_local(path) else [path.partition("?")[0], path]
    return next((FORMATS[suffix] for name in names if (suffix := suffix_of(Path(name))) in FORMATS), None)


def scan_files(
    path: str | io.BytesIO,
    file_format: str,
    schema: Schema | None = None,
    *,
    is_given: bool = False,
    by_bounds: bool = True,
) -> pl.LazyFrame:
    """Return one file, or its content, as a Polars lazy frame; `schema` fixes types that the file does not store.

    A file that is not local is read as a whole. `is_given` says that the schema was not guessed, but the user's,
    `by_bounds` that a filter may leave out row groups by the bounds that a parquet file says of them.
    """
    if isinstance(path, str) and not is_local(path):
        with open_file(path) as file:
            path = io.BytesIO(file.read())
    match file_format:
        case "parquet":
            return pl.scan_parquet(path, glob=False, use_statistics=by_bounds)
        case "csv":
            return _scan_csv(path, schema, is_given=is_given)
        case "ndjson":
            return _scan_ndjson(path, schema)
        case _:
            return pl.scan_ipc(path, glob=False)


def _scan_ndjson(path: str | io.BytesIO, schema: Schema | None) -> pl.LazyFrame:
    path = _without_mark(path)
    # It alone of Polars' readers cannot be told that a name is no glob: a[1].ndjson would be read as a1.ndjson.
    source = glob.escape(path) if isinstance(path, str) else path
    if schema is None:
        return pl.scan_ndjson(source)
    narrow = {name: READ_AS[type(dtype)] for name, dtype in schema.items() if type(dtype) in READ_AS}
    lazy = pl.scan_ndjson(source, schema={**schema, **narrow})
    return lazy.cast({name: schema[name] for name in narrow}) if narrow else lazy


def _without_mark(path: str | io.BytesIO) -> str | io.BytesIO:
    """Return the file, or what follows the mark of UTF-8 in it: Polars skips that in csv files only."""
    if isinstance(path, io.BytesIO):
        content = path.getvalue()
        return io.BytesIO(content[len(BOM_UTF8) :]) if content.startswith(BOM_UTF8) else path
    with open_file(path) as file:
        return io.BytesIO(file.read()) if file.read(len(BOM_UTF8)) == BOM_UTF8 else path


def read_stored(path: Path, file_format: str = "ipc") -> pl.DataFrame:
    """Return the rows of a file of ours; `pl.read_ipc` would take a folder called [1] for a glob."""
    return scan_files(str(path), file_format).collect()


def _scan_csv(path: str | io.BytesIO, schema: Schema | None, *, is_given: bool) -> pl.LazyFrame:
    types = None if schema is None else dict(as_text(schema))
    lazy = pl.scan_csv(path, glob=False, try_parse_dates=True, schema_overrides=types)
    if schema is None:
        return lazy
    try:
        return read_times(lazy, schema, is_given=is_given)
    except pl.exceptions.NoDataError:
        return schema.empty_frame().lazy()  # not even a first line: a file without rows, beside others


def changed_type(columns: Schema, path: str, file_format: str) -> SchemaChangedError | None:
    """Return the error for a file whose values do not fit the columns of its input, if that can be told."""
    try:
        found = file_schema(path, file_format) or columns
    except SourceReadError:
        return None
    for name, dtype in columns.items():
        if name not in found and file_format != "ndjson":
            return _changed(name, found, columns, path, file_format)
        fits = _may_fit if file_format not in TYPED else operator.eq
        if name in found and not fits(found[name], dtype):
            return _changed(name, found, columns, path, file_format)
    return None


def other_types(found: Schema, columns: Schema, path: str, file_format: str) -> SchemaChangedError:
    """Return the error for a file that stores other types than its input has."""
    name = next(name for name, dtype in columns.items() if found[name] != dtype)
    return _changed(name, found, columns, path, file_format)


def _may_fit(guessed: pl.DataType, dtype: pl.DataType) -> bool:
    """Whether values of a guessed type may be of the other, so that the column is not to blame."""
    if common_type(guessed, dtype) == dtype or isinstance(dtype, pl.Decimal):
        return True
    if isinstance(guessed, pl.String):
        return dtype.is_temporal() or isinstance(dtype, (pl.Categorical, pl.Enum))
    return guessed.is_integer() and dtype.is_integer()


def _changed(name: str, found: Schema, columns: Schema, path: str, file_format: str) -> SchemaChangedError:
    shown = str(found[name]) if name in found else "not there"
    say = "" if file_format in TYPED else f"say it, schema={{{name!r}: pl.…, …}}, or "
    return SchemaChangedError(
        f"scan: column {name!r} is {shown} in {path!r}; in this input it is {columns[name]}",
        f"files of one input have the same types; {say}scan them apart and unite them with union(…).",
    )


def common_type(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    """Return the type that text of both can be read as, if there is one.

    Examples
    --------
    >>> common_type(pl.Int64(), pl.Float64()), common_type(pl.Int64(), pl.Boolean())
    (Float64, None)
    """
    if one == other:
        return one
    kinds = {_kind(one), _kind(other)} - {"null", "text"}
    if len(kinds) > 1:
        return None  # Polars has a common type for some of these, and fails to read them as such
    try:
        return pl.concat([pl.DataFrame(schema={"x": dtype}) for dtype in (one, other)], how="vertical_relaxed")[
            "x"
        ].dtype
    except pl.exceptions.PolarsError:
        return None


def _kind(dtype: pl.DataType) -> str:
    if isinstance(dtype, (pl.Null, pl.String)):
        return "null" if isinstance(dtype, pl.Null) else "text"
    return "number" if dtype.is_numeric() else type(dtype).__name__


def first_line(error: Exception) -> str:
    """Return what an error says first."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def unreadable_hint(file_format: str) -> str:
    """Return what to look for in a file that cannot be read."""
    if file_format in TYPED:
        return "is the file whole?"
    return "is the file whole, and does each column hold values of one type? schema={…} says of which."


def unreadable(path: str, file_format: str, error: Exception) -> SourceReadError:
    """Return the error for a file that cannot be read, or is not there any more."""
    if isinstance(error, FileNotFoundError) or (is_local(path) and not Path(path).exists()):
        return SourceReadError(
            f"scan: {path!r} is gone, or not seen from this machine; it was there when the query was made",
            "put it back, or make the query again; on a cluster all machines must see the files.",
        )
    hint = "may you read the file?" if isinstance(error, PermissionError) else unreadable_hint(file_format)
    return SourceReadError(f"scan: {path!r} cannot be read as {file_format}: {first_line(error)}", hint)


def file_schema(path: str, file_format: str) -> Schema | None:
    """Return the columns of a file; None of a csv file that has not even a first line."""
    try:
        if file_format not in TYPED:
            return Schema(scan_files(path, file_format).collect_schema())
        return _stored_schemas[file_format](path)
    except pl.exceptions.NoDataError:
        return None
    except read_errors() as error:
        raise unreadable(path, file_format, error) from error


def _stored_schema(path: str, file_format: str) -> Schema:
    """Return the columns of a file of a format that stores types."""
    if is_local(path):
        return Schema(scan_files(path, file_format).collect_schema())
    try:
        return _schema_at_end(path, file_format)
    except read_errors():  # as of a type that Arrow has not: Polars tells, of all that is in the file
        return Schema(scan_files(path, file_format).collect_schema())


_stored_schemas = {name: KeptByFile(partial(_stored_schema, file_format=name), KEPT_SCHEMAS) for name in TYPED}


def _schema_at_end(path: str, file_format: str) -> Schema:
    """Return the columns of a file that is not local, of which only the end is read."""
    import pyarrow as pa

    with open_file(path) as file:
        if file_format == "parquet":
            return Schema(scan_files(_end_of_parquet(file), file_format).collect_schema())
        return Schema(from_arrow(pa.ipc.open_file(file).schema.empty_table()).schema)


def _end_of_parquet(file: pa.NativeFile) -> io.BytesIO:
    """Return a parquet file without its rows, which says of its columns what the whole one says."""
    mark, size = b"PAR1", file.size()
    file.seek(max(size - 8, 0))
    told = int.from_bytes(file.read(4), "little")
    file.seek(max(size - 8 - told, 0))
    return io.BytesIO(mark + file.read())


def compare_columns(first: str, expected: Schema, path: str, found: Schema, *, types: bool) -> None:
    """Raise unless a file has the columns that are expected, as `first` has them; `types` of the same types."""
    for name in expected:
        if name not in found:
            raise SchemaChangedError(
                f"scan: {path!r} has no column {name!r}, which is {expected[name]} in {first}",
                "files of one input have the same columns; scan them apart and unite them with union(…).",
            )
        if types and found[name] != expected[name]:
            raise SchemaChangedError(
                f"scan: column {name!r} is {found[name]} in {path!r}, but {expected[name]} in {first}",
                "files of one input have the same types; scan them apart, cast and unite them with union(…).",
            )
    extra = [name for name in found if name not in expected]
    if extra:
        raise SchemaChangedError(
            f"scan: {path!r} has a column {extra[0]!r} ({found[extra[0]]}), which {first} has not",
            "files of one input have the same columns; scan them apart and unite them with union(…).",
        )
