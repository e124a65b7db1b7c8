"""Build source nodes: read the input's columns, bind `start=` and `end=`, check the promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from squill.arguments import checked_flag, checked_label, is_one_of
from squill.errors import DurationError, PlanError, TimeTypeError
from squill.plan.build.events import checked_disorder
from squill.plan.build.file_columns import input_columns
from squill.plan.build.files import FORMATS, expand_paths, format_of
from squill.plan.dataset import Dataset, find_dataset
from squill.plan.expressions import Expression, Scope, bind_one
from squill.plan.node import Node
from squill.plan.nodes import Disorder, FileSource, FrameSource, Lifetime, Promises, PushSource, Stored
from squill.plan.nodes.tables import CachedSource, ElsewhereSource, TableSource
from squill.plan.properties import Properties
from squill.plan.schema import Schema, checked_schema
from squill.time import Duration, TimeType
from squill.wording import kind_of, shortened

__all__ = [
    "FORMATS", "at_least_zero", "brought_source", "cached_source", "elsewhere_source", "file_source", "frame_source",
    "held_source", "lifetime_of", "promises_of", "push_source", "stored_as", "stored_source", "table_source",
    "to_frame", "wall_seconds",
]  # fmt: skip


def to_frame(data: Any, operator: str) -> pl.DataFrame:
    """Return anything tabular as a Polars frame, without copying where that is possible."""
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    try:
        if isinstance(data, dict):
            return pl.DataFrame(data)
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return pl.DataFrame(data)
        if type(data).__module__.split(".")[0] == "pandas":
            return pl.from_pandas(data)
        if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
            return pl.DataFrame(data, infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise PlanError(f"{operator}: the data cannot be read as a table: {error}", "check the columns.") from error
    raise PlanError(
        f"{operator}: {kind_of(data)} is not a table",
        "give a Polars, Arrow or pandas frame, a dict of columns, or anything with the Arrow C stream.",
    )


def lifetime_of(
    columns: Schema, start: object, end: object, lifetime: str, operator: str, *, keep_time: bool
) -> Lifetime | None:
    """Return how times are read off the rows; None for relational data."""
    if not is_one_of(lifetime, ("point", "open")):
        raise PlanError(f"{operator}: lifetime is {shortened(lifetime)}", 'use "point" or "open".')
    checked_flag(keep_time, f"{operator}: keep_time")
    if start is None:
        if end is not None:
            raise PlanError(f"{operator}: end= without start=", "name the start column too.")
        return None
    scope = Scope(columns, None, ends_known=False)
    start_expression = bind_one(start, scope, f"{operator}: start")
    time = TimeType.of(start_expression.dtype, start_expression.name)
    end_expression: Expression | None = None
    if end is not None:
        end_expression = bind_one(end, scope, f"{operator}: end")
        # A column of nulls only has no type of its own: all these events are endless.
        endless = isinstance(end_expression.dtype, pl.Null)
        end_time = time if endless else TimeType.of(end_expression.dtype, end_expression.name)
        if end_time != time and not (time.is_integer and end_time.is_integer):
            raise TimeTypeError(
                f"{operator}: start {start_expression.name!r} is {time}, end {end_expression.name!r} is {end_time}",
                "give both the same type.",
            )
    return Lifetime(start=start_expression, end=end_expression, kind=lifetime, keep_time=keep_time)


def promises_of(
    columns: Schema,
    lifetime: Lifetime | None,
    sorted_by: object,
    packed: object,
    duration: Duration | None,
    unique: object,
    operator: str,
    *,
    trust: bool,
) -> Promises:
    checked_flag(trust, f"{operator}: trust")
    time = None if lifetime is None else TimeType.of(lifetime.start.dtype)
    ticks: int | None = None
    if duration is not None:
        if time is None or lifetime is None or lifetime.end is None:
            raise PlanError(f"{operator}: duration= promises the length of lifetimes, but there is no end=", "drop it.")
        ticks = time.positive(duration, f"{operator}: duration")
    return Promises(
        sorted_by=_names(sorted_by, columns, f"{operator}: sorted_by"),
        packed=_key_names(packed, columns, f"{operator}: packed"),
        duration=ticks,
        unique=_key_names(unique, columns, f"{operator}: unique"),
        trust=trust,
    )


def _names(given: object, columns: Schema, operator: str) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise PlanError(
                f"{operator}: {shortened(given)} does not name columns", 'give a name, or a list: ["user", "ad"].'
            )
        columns.require(name, operator)
    return names


def _key_names(given: object, columns: Schema, operator: str) -> tuple[str, ...]:
    names = _names(given, columns, operator)
    for name in names:
        if columns[name].is_nested() or isinstance(columns[name], pl.Object):
            raise PlanError(
                f"{operator}: column {name!r} is {columns[name]}, which cannot be a key", "name plain columns."
            )
    return names


def frame_source(
    data: Any, start: object, end: object, lifetime: str, name: str | None, *, keep_time: bool, **promises: Any
) -> Node:
    frame = to_frame(data, "from_frame")
    columns = Schema(frame.schema)
    read = lifetime_of(columns, start, end, lifetime, "from_frame", keep_time=keep_time)
    built = FrameSource(
        label=checked_label(name, "from_frame") or "frame",
        columns=columns,
        lifetime=read,
        promises=promises_of(columns, read, operator="from_frame", **promises),
        frame=frame,
        frame_id=id(frame),
    )
    if read is not None:
        built.schema.without_time_names("from_frame")
    return built


def table_source(
    table: Any,
    columns: Schema,
    start: object,
    end: object,
    lifetime: str,
    name: str | None,
    *,
    keep_time: bool,
) -> Node:
    """Return the rows of a runtime's own table, whose columns are these."""
    read = lifetime_of(columns, start, end, lifetime, "from_spark", keep_time=keep_time)
    built = TableSource(
        label=checked_label(name, "from_spark") or "table",
        columns=columns,
        lifetime=read,
        paths=(),
        format="ipc",
        table=table,
        table_id=id(table),
    )
    if read is not None:
        built.schema.without_time_names("from_spark")
    return built


def elsewhere_source(stream: Any, node: Node, operator: str) -> Node:
    """Return the rows of a stream of another cluster, whose plan is `node`."""
    if node.properties.per_window or node.codecs:
        what = "rows of per_window()" if node.properties.per_window else "columns of Python objects"
        raise PlanError(f"{operator}: {what} cannot move to another cluster", "move the rows they are made of.")
    return ElsewhereSource(
        label="rows of another cluster",
        columns=node.schema,
        lifetime=None,
        stream=stream,
        stream_id=id(stream),
        time_type=node.time,
        known=Properties(endless=node.is_relational, duration=node.properties.duration),
    )


def brought_source(source: ElsewhereSource, frame: pl.DataFrame) -> Node:
    """Return the rows of another cluster, which are there now."""
    columns = Schema(frame.schema)
    start, end = (None, None) if source.time is None else ("start", "end")
    read = lifetime_of(columns, start, end, "point", "redistribute", keep_time=False)
    return FrameSource(
        label=source.label,
        columns=columns,
        lifetime=None if read is None else replace(read, null_start=True),
        promises=Promises(duration=source.known.duration if source.time is not None else None, trust=True),
        frame=frame,
        frame_id=id(frame),
    )


def push_source(
    schema: Mapping[str, Any],
    start: str,
    end: str | None,
    lifetime: str,
    name: str | None,
    disorder: Disorder,
    punctuate_every: Duration | None,
    feed: object,
    *,
    keep_time: bool,
) -> PushSource:
    columns = checked_schema(schema, "source")
    read = lifetime_of(columns, start, end, lifetime, "source", keep_time=keep_time)
    if read is None or read.start.source_column is None or (read.end is not None and read.end.source_column is None):
        raise PlanError("source: start= and end= name columns of the schema", 'sq.source({"t": pl.Int64}, start="t").')
    time = TimeType.of(read.start.dtype, read.start.name)
    built = PushSource(
        label=checked_label(name, "source") or "source",
        columns=columns,
        lifetime=read,
        source=feed,
        source_id=id(feed),
        disorder=checked_disorder(disorder, time, "source"),
        punctuate_every=None if punctuate_every is None else time.positive(punctuate_every, "source: punctuate_every"),
    )
    built.schema.without_time_names("source")
    return built


def at_least_zero(number: object, what: str) -> int:
    """Return a whole number that is not negative."""
    if type(number) is not int or number < 0:
        raise PlanError(f"{what} is {shortened(number)}", "give a whole number of at least 0.")
    return number


def wall_seconds(given: Duration | None, what: str) -> float | None:
    """Return a wall-clock duration in seconds."""
    if given is None:
        return None
    if isinstance(given, int):
        raise DurationError(
            f"{what} is {shortened(given)}; it is wall-clock time and needs a unit", 'write "5ms" or a timedelta.'
        )
    nanoseconds = TimeType(pl.Datetime("ns")).ticks(given, what)
    if nanoseconds < 0:
        raise PlanError(f"{what} is {shortened(given)}", "give zero or more.")
    return nanoseconds / 1e9


def file_source(
    paths: object,
    start: object,
    end: object,
    lifetime: str,
    name: str | None,
    file_format: str | None,
    *,
    keep_time: bool,
    schema: object = None,
    **promises: Any,
) -> Node:
    dataset = find_dataset(paths) if schema is None else None
    if dataset is not None and start is None and end is None:
        return stored_source(dataset, name, file_format, keep_time=keep_time, **promises)
    if dataset is not None and dataset.progress is not None and not dataset.timed:
        # Its files are in an order, and have one column more than the rows, which only the manifest says.
        read = lifetime_of(dataset.columns, start, end, lifetime, "scan", keep_time=keep_time)
        return _over_dataset(dataset, name, file_format, read, replace(stored_as(dataset), keys=()), **promises)
    found = expand_paths(paths)
    files = tuple(file.path for file in found)
    chosen = format_of(files, file_format)
    columns, folder_columns = input_columns(found, chosen, schema, "scan")
    read = lifetime_of(columns, start, end, lifetime, "scan", keep_time=keep_time)
    built = FileSource(
        label=checked_label(name, "scan") or Path(files[0]).parent.name or "scan",
        columns=columns,
        lifetime=read,
        promises=promises_of(columns, read, operator="scan", **promises),
        paths=files,
        format=chosen,
        folder_columns=folder_columns,
        is_given=schema is not None,
    )
    if read is not None:
        built.schema.without_time_names("scan")
    return built


def stored_source(
    dataset: Dataset, name: str | None, file_format: str | None = None, *, keep_time: bool = False, **promises: Any
) -> Node:
    """Return the rows of a dataset as they were when it was written, by what its manifest says."""
    start, end = ("start", "end") if dataset.timed else (None, None)
    read = lifetime_of(dataset.columns, start, end, "point", "scan", keep_time=keep_time)
    read = None if read is None else replace(read, null_start=True)
    return _over_dataset(dataset, name, file_format, read, stored_as(dataset), **promises)


def _over_dataset(
    dataset: Dataset, name: str | None, file_format: str | None, read: Lifetime | None, stored: Stored, **promises: Any
) -> Node:
    """Return the rows of a dataset with these times."""
    if not is_one_of(file_format, (None, dataset.format)):
        raise PlanError(
            f"scan: format is {shortened(file_format)}, but {dataset.path!r} is a dataset of {dataset.format} files",
            "leave format out: the manifest says it.",
        )
    asked = {"sorted_by": None, "packed": None, "duration": None, "unique": None, "trust": False, **promises}
    given = promises_of(dataset.columns, read, operator="scan", **asked)
    built = FileSource(
        label=checked_label(name, "scan") or dataset.name or Path(dataset.path).name,
        columns=dataset.columns,
        lifetime=read,
        promises=given if given.duration is not None else replace(given, duration=dataset.duration),
        paths=dataset.paths,
        format=dataset.format,
        stored=stored,
    )
    if read is not None:
        built.schema.without_time_names("scan")
    return built


def held_source(dataset: Dataset, frame: pl.DataFrame) -> Node:
    """Return the rows of a dataset that this process holds in memory, the rows of a shard behind one another."""
    return FrameSource(
        label=dataset.name or "memory",
        columns=dataset.columns,
        lifetime=_stored_lifetime(dataset),
        promises=Promises(duration=dataset.duration),
        frame=frame,
        frame_id=id(frame),
        stored=stored_as(dataset),
    )


def cached_source(dataset: Dataset, table: Any) -> Node:
    """Return the rows of a dataset that a runtime has in its own memory, as a table."""
    return CachedSource(
        label=dataset.name or "memory",
        columns=dataset.columns,
        lifetime=_stored_lifetime(dataset),
        promises=Promises(duration=dataset.duration),
        paths=(),
        format="ipc",
        table=table,
        table_id=id(table),
        stored=stored_as(dataset),
    )


def _stored_lifetime(dataset: Dataset) -> Lifetime | None:
    start, end = ("start", "end") if dataset.timed else (None, None)
    read = lifetime_of(dataset.columns, start, end, "point", "dataset", keep_time=False)
    return None if read is None else replace(read, null_start=True)


def stored_as(dataset: Dataset) -> Stored:
    """Return what plans remember of a dataset that they read."""
    return Stored(
        folder=dataset.path,
        name=dataset.name,
        version=dataset.version,
        shards=dataset.shards,
        shard_of=tuple(file.shard for file in dataset.files),
        rows=tuple(file.rows for file in dataset.files),
        keys=dataset.keys,
        placed_by=dataset.placed_by,
        progress=dataset.progress,
    )
