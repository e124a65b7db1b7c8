"""The columns that the files of one input have together, and the types of those that store none.

Parquet and ipc files say their types, and must agree. The types of a csv column are guessed from the first values that
any file has for it: files of a header alone, or of nothing, tell none. A field of ndjson may come up for the first time
in the last line of the last file, so all lines are looked at; where no one type holds the values of a field, that
is an error. Who says the columns (`schema=`) spares that.
"""

from __future__ import annotations

import io
import os
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import polars as pl

from squill.errors import PlanError, SchemaChangedError, SourceReadError
from squill.plan.build.files import TYPED, FoundFile, common_type, compare_columns, file_schema, scan_files, unreadable
from squill.plan.build.folder_columns import folder_schema
from squill.plan.build.locations import is_compressed, open_file, read_errors
from squill.plan.nodes import FileSource
from squill.plan.schema import Schema, checked_schema

__all__ = ["check_columns", "given_schema", "input_columns"]

NOT_IN_JSON = (pl.Time, pl.Duration, pl.Binary, pl.Object)
SAMPLE_ROWS = 100
"""So many rows of a csv file Polars guesses types from."""
BLOCK_BYTES = 8 << 20
"""So much of an ndjson file is looked at at a time."""


def input_columns(
    files: Sequence[FoundFile], file_format: str, given: object, operator: str, *, first_only: bool = False
) -> tuple[Schema, tuple[str, ...]]:
    """Return the columns of an input, given by the user or found, and those of them that the folders tell.

    With `first_only` the first file that has rows speaks for all, as where more files will come.
    """
    looked_at = _first_with_rows(files, file_format) if first_only else files
    folders = folder_schema(looked_at)
    paths = [found.path for found in looked_at]
    if given is not None:
        said = given_schema(given, operator)
        _check_given(said.only(name for name in said if name not in folders), paths, file_format, operator)
        return Schema({**said, **{name: said.get(name, dtype) for name, dtype in folders.items()}}), folders.names
    own = common_schema(paths, file_format)
    told = folders.only(name for name in folders if name not in own)
    return Schema({**own, **told}), told.names


def _first_with_rows(files: Sequence[FoundFile], file_format: str) -> Sequence[FoundFile]:
    if file_format in TYPED:
        return files[:1]
    return [next((found for found in files if _has_rows(found.path, file_format)), *files[:1])] if files else []


def _has_rows(path: str, file_format: str) -> bool:
    try:
        return scan_files(path, file_format).head(1).collect().height > 0
    except read_errors():
        return False


def common_schema(files: Sequence[str], file_format: str) -> Schema:
    """Return the columns of all files together, or raise for the first file that does not fit the others."""
    if file_format == "ndjson":
        return _all_fields(files)
    found = [(path, schema) for path in files if (schema := file_schema(path, file_format)) is not None]
    if not found:
        raise _empty(files)
    first = found[0][1]
    for path, schema in found[1:]:
        compare_columns(repr(found[0][0]), first, path, schema, types=file_format in TYPED)
    return first if file_format in TYPED else _types_of_first_values(found)


def given_schema(given: object, operator: str) -> Schema:
    """Return the columns that the user says: nothing is guessed, and what the files have beside them is left out."""
    columns = checked_schema(given, operator)
    if not columns:
        raise PlanError(f"{operator}: schema is {given}", 'map names to types: {"ts": pl.Datetime("us")}.')
    return columns


def _check_given(columns: Schema, files: Sequence[str], file_format: str, operator: str) -> None:
    if operator == "scan" and file_format in TYPED:
        raise PlanError(
            f"{operator}: schema= is given, but {file_format} files say the types of their columns",
            "leave it out, and cast where you need another type: with_columns(pl.col(…).cast(…)).",
        )
    for name, dtype in columns.items():
        if file_format == "ndjson" and isinstance(dtype, NOT_IN_JSON):
            raise PlanError(
                f"{operator}: column {name!r} is {dtype}, which is not read from ndjson",
                "read it as pl.String or pl.Int64, and convert it: with_columns(…).",
            )
    if file_format == "csv":
        for path in files:
            found = file_schema(path, file_format)
            missing = [] if found is None else [name for name in columns if name not in found]
            if found is not None and missing:
                raise SchemaChangedError(
                    f"{operator}: {path!r} has no column {missing[0]!r}, which schema= names; "
                    f"its columns are: {', '.join(found)}",
                    "leave the column out of schema=, or mend the file.",
                )


def check_columns(path: str, source: FileSource, where: str) -> None:
    """Raise unless a file that came later has the columns of its input: of typed ones all, else no others.

    What the columns of a file without types hold is seen when it is read; a column more would be lost without a word,
    unless the user has said which to take.
    """
    columns, file_format = source.file_columns, source.format
    if file_format not in TYPED and source.is_given:
        return
    found = (_fields_of(path) if file_format == "ndjson" else file_schema(path, file_format)) or Schema()
    for name in [*(columns if file_format in TYPED else ()), *found]:
        if name in columns and file_format not in TYPED:
            continue
        if found.get(name) != columns.get(name):
            shown = [str(schema[name]) if name in schema else "not there" for schema in (found, columns)]
            say = "" if file_format in TYPED else "say which to take, stream(…, schema={…}), or "
            raise SchemaChangedError(
                f"{where}: column {name!r} is {shown[0]} in {path!r}; in this input it is {shown[1]}",
                f"files of one input have the same columns; {say}mend the file, or remove it, and start again.",
            )


def _empty(files: Sequence[str]) -> SourceReadError:
    which = f"{files[0]!r} is empty" if len(files) == 1 else f"all {len(files)} files are empty, {files[0]!r} too"
    return SourceReadError(
        f"scan: {which}, so the columns are not known",
        'say them, schema={"ts": pl.Datetime("us"), …}, or give a file that has rows.',
    )


def _types_of_first_values(found: Sequence[tuple[str, Schema]]) -> Schema:
    """Return the columns of csv files: each has the type of its first values, in whichever file they are."""
    types = dict(found[0][1])
    open_names = set(types)
    for path, schema in found:
        typed = {name for name in open_names if schema[name] != pl.String()}
        typed |= _with_values(path, open_names - typed)
        types.update({name: schema[name] for name in typed})
        open_names -= typed
        if not open_names:
            break
    return Schema(types)


def _with_values(path: str, names: set[str]) -> set[str]:
    """Return those of the columns that have a value among the rows that types are guessed from."""
    if not names:
        return set()
    try:
        sample = scan_files(path, "csv").select(sorted(names)).head(SAMPLE_ROWS).collect()
    except read_errors() as error:
        raise unreadable(path, "csv", error) from error
    return {name for name in names if sample[name].null_count() < sample.height}


def _all_fields(files: Sequence[str]) -> Schema:
    found = _fields_of(*files)
    if not found:
        raise _empty(files)
    return found


def _fields_of(*files: str) -> Schema:
    types: dict[str, pl.DataType] = {}
    told_by: dict[str, str] = {}
    for path, found in _looked_at(files):
        for name, dtype in found.items():
            types[name] = _both(name, (told_by.setdefault(name, path), types.get(name, dtype)), (path, dtype))
    return Schema(types)


def _looked_at(files: Sequence[str]) -> Iterator[tuple[str, Schema]]:
    """Yield what blocks of lines tell, in order; as many at a time as there are cores, since it takes a while."""
    blocks = ((path, block) for path in files for block in _blocks(path))
    workers = os.cpu_count() or 1
    waiting: list[tuple[str, Future[Schema]]] = []
    with ThreadPoolExecutor(workers) as pool:
        while taken := list(islice(blocks, workers)):
            waiting = [(path, pool.submit(_fields, path, block)) for path, block in taken]
            yield from ((path, told.result()) for path, told in waiting)


def _blocks(path: str) -> Iterator[bytes]:
    """Yield whole lines of a file; a compressed one is one block."""
    try:
        with open_file(path) as file:
            rest = file.read(BLOCK_BYTES)
            if is_compressed(rest):
                yield rest + file.read()
                return
            while block := file.read(BLOCK_BYTES):
                whole, end, begun = block.rpartition(b"\n")
                if end:
                    yield rest + whole
                rest = begun if end else rest + block
            yield rest
    except read_errors() as error:
        raise unreadable(path, "ndjson", error) from error


def _fields(path: str, block: bytes) -> Schema:
    block = block.removeprefix(BOM_UTF8)
    if not block.strip():
        return Schema()
    try:
        return Schema(pl.scan_ndjson(io.BytesIO(block), infer_schema_length=None).collect_schema())
    except read_errors() as error:
        raise unreadable(path, "ndjson", error) from error


def _both(name: str, before: tuple[str, pl.DataType], found: tuple[str, pl.DataType]) -> pl.DataType:
    """Return the type that holds the values of both."""
    (first, one), (path, other) = before, found
    common = common_type(one, other)
    if common is None:
        raise SchemaChangedError(
            f"scan: field {name!r} is {other} in {path!r}, but {one} in {first!r}",
            "a field has values of one type; mend the lines, or say what to take: schema={…}.",
        )
    return common
