"""Columns that no file holds: the names of folders tell them, `year=2024/region=eu/part-0.parquet`.

That is how Spark, Hive and Polars partition what they write. The columns come after those that the files hold, and one
that they hold themselves is read from them. Types are guessed from the values of all folders, as Polars does. A filter
on such columns says which files need not be read.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import unquote

import polars as pl

from squill.errors import SchemaChangedError
from squill.plan.build.files import FoundFile, scan_files
from squill.plan.compared import compares_values
from squill.plan.expression_text import conditions_of, deserialise, dump_tree, load_tree
from squill.plan.nodes import FileSource
from squill.plan.schema import Schema

__all__ = ["file_rows", "folder_schema", "folder_values", "paths_to_read", "with_folder_columns"]

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How a folder of rows is called that have no value."""


def folder_schema(files: Sequence[FoundFile]) -> Schema:
    """Return the columns that folders below those given tell; all files must have the same."""
    told = [_told(found.folders) for found in files]
    names = list(told[0]) if told else []
    for found, values in zip(files, told, strict=True):
        if set(values) != set(names):
            shown = [", ".join(f"{name}=…" for name in keys) or "no such folder" for keys in (values, names)]
            raise SchemaChangedError(
                f"scan: {found.path!r} is below {shown[0]}, but {files[0].path!r} below {shown[1]}",
                "folders of one input tell the same columns; scan them apart and unite them with union(…).",
            )
    return Schema({name: _typed(tuple(values[name] for values in told), None).dtype for name in names})


def _told(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the values by column, as text.

    Examples
    --------
    >>> _told(["sales", "year=2024", "city=S%C3%A3o%20Paulo", "z=__HIVE_DEFAULT_PARTITION__"])
    {'year': '2024', 'city': 'São Paulo', 'z': None}
    """
    pairs = (folder.partition("=") for folder in folders)
    return {unquote(name): None if value == NULL else unquote(value) for name, sign, value in pairs if sign and name}


@lru_cache(maxsize=4_096)
def _typed(texts: tuple[str | None, ...], dtype: pl.DataType | None) -> pl.Series:
    """Return values of a type, which is guessed when it is not given."""
    content = pl.DataFrame({"x": texts}, schema={"x": pl.String}).write_csv().encode()
    types = None if dtype is None else {"x": dtype}
    return pl.read_csv(
        io.BytesIO(content), try_parse_dates=True, infer_schema_length=None, schema_overrides=types
    ).to_series()


def folder_values(source: FileSource, path: str) -> list[pl.Series]:
    """Return what the folders of a file say, a column of one value each."""
    told = _told(PurePosixPath(path).parts[:-1]) if source.folder_columns else {}
    return [_value(source, path, name, told) for name in source.folder_columns]


def _value(source: FileSource, path: str, name: str, told: dict[str, str | None]) -> pl.Series:
    dtype = source.columns[name]
    if name not in told:
        raise SchemaChangedError(
            f"scan: {path!r} is below no folder {name}=…, as other files of this input are",
            "folders of one input tell the same columns; move the file.",
        )
    if told[name] is None:
        return pl.Series(name, [None], dtype)
    try:
        return _typed((told[name],), dtype).alias(name)
    except pl.exceptions.PolarsError as error:
        raise SchemaChangedError(
            f"scan: the folder {name}={told[name]} of {path!r} is no {dtype}, which column {name!r} is in this input",
            "values of one column have one type; rename the folder, or scan such folders apart.",
        ) from error


def with_folder_columns(frame: Frame, source: FileSource, path: str) -> Frame:
    """Return the rows of a file with the columns that its folders tell."""
    values = [pl.lit(series[0], series.dtype).alias(series.name) for series in folder_values(source, path)]
    return frame.with_columns(values) if values else frame


def file_rows(source: FileSource, path: str, content: io.BytesIO | None = None) -> pl.LazyFrame:
    """Return the rows of a file of the source, or of a part of its content."""
    given = path if content is None else content
    by_bounds = source.predicate is None or compares_values(source.predicate, source.columns)
    lazy = scan_files(given, source.format, source.file_columns, is_given=source.is_given, by_bounds=by_bounds)
    return with_folder_columns(lazy, source, path)


def paths_to_read(source: FileSource) -> tuple[str, ...]:
    """Return the files in which the filter may keep a row, as far as the names of their folders tell."""
    if source.predicate is None or not source.folder_columns or not source.paths:
        return source.paths
    values = [folder_values(source, path) for path in source.paths]
    told = pl.DataFrame([pl.concat(column) for column in zip(*values, strict=True)])
    keep = pl.Series([True]).new_from_index(0, told.height)
    for tree in conditions_of(load_tree(source.predicate.serialised)):
        condition = deserialise(dump_tree(tree))
        if set(condition.meta.root_names()) <= set(source.folder_columns):
            try:
                keep &= told.select(condition.fill_null(value=False)).to_series()
            except pl.exceptions.PolarsError:
                continue  # reading says what is wrong with it
    return tuple(path for path, kept in zip(source.paths, keep, strict=True) if kept)
