"""Build live sources: find out the columns, bind the times, check the policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from squill.arguments import checked_label
from squill.errors import PlanError, SourceReadError
from squill.plan.build.events import checked_disorder
from squill.plan.build.file_columns import given_schema, input_columns
from squill.plan.build.files import FORMATS, FoundFile, format_of
from squill.plan.build.locations import folders_below, matching_files
from squill.plan.build.sources import at_least_zero, lifetime_of, to_frame, wall_seconds
from squill.plan.live import Partitions, PushedRows, StoredRows, StreamingTable, WatchedFolder
from squill.plan.node import Node, walk
from squill.plan.nodes import Disorder, FileSource, FrameSource, PushSource, Source
from squill.plan.nodes.live import LiveSource
from squill.plan.nodes.tables import TableSource
from squill.plan.paths import path_text
from squill.plan.rebuild import substitute
from squill.plan.schema import Schema
from squill.time import Duration, TimeType
from squill.wording import shortened

__all__ = ["folder_source", "growing", "partitions_source", "pushed_source", "streaming_source"]

OPERATOR = "stream"


def folder_source(
    path: str | os.PathLike[str],
    *,
    file_format: str | None,
    schema: Mapping[str, Any] | None,
    files_per_epoch: int | None,
    name: str | None,
    **times: Any,
) -> LiveSource:
    """Return the rows of files that appear in a folder."""
    text = path_text(path, OPERATOR, 'give that of a folder in which files appear, such as "inbox/".')
    if files_per_epoch is not None and (type(files_per_epoch) is not int or files_per_epoch < 1):
        raise PlanError(
            f"stream: files_per_epoch is {shortened(files_per_epoch)}", "give a whole number of at least 1."
        )
    if not Path(text).is_dir():
        raise SourceReadError(f"stream: there is no folder {text!r}", "make it before; files may come later.")
    files = [FoundFile(path, folders_below(text, path)) for path in matching_files(text, FORMATS)]
    if not files and (schema is None or file_format is None):
        raise SourceReadError(
            f"stream: {text!r} holds no file yet, so its columns are not known",
            'say what will come: schema={"ts": pl.Datetime("us"), …} and format="parquet".',
        )
    chosen = format_of([found.path for found in files] or (text,), file_format)
    columns, folder_columns = input_columns(files, chosen, schema, OPERATOR, first_only=True)
    live = WatchedFolder(path=str(Path(text).resolve()), files_per_epoch=files_per_epoch)
    label = checked_label(name, OPERATOR) or Path(text).name
    return _built(live, columns, chosen, label, folder_columns, is_given=schema is not None, **times)


def partitions_source(
    given: Partitions, *, schema: Mapping[str, Any] | None, name: str | None, **times: Any
) -> LiveSource:
    """Return the rows of a user's own source; without a schema the first rows of a partition tell the columns."""
    columns = _peeked(given) if schema is None else given_schema(schema, OPERATOR)
    return _built(given, columns, "partitions", checked_label(name, OPERATOR) or "partitions", **times)


def pushed_source(given: Node, *, name: str | None) -> LiveSource:
    """Return the rows of a pushed source, which has its times and its policy already."""
    if not isinstance(given, PushSource):
        raise PlanError(
            f"stream: {given.name} is not a source that keeps growing",
            "give a folder, sq.partitions(…), or sq.source(…) itself; queries come after: stream(…).query(…).",
        )
    return LiveSource(
        label=checked_label(name, OPERATOR) or given.label,
        columns=given.columns,
        lifetime=given.lifetime,
        paths=(),
        format="pushed",
        live=PushedRows(feed=given.source),
        live_id=given.source_id,
        disorder=Disorder(policy="throw"),  # it has gone through the source's own
    )


def streaming_source(table: object, columns: Schema, *, name: str | None, **times: Any) -> LiveSource:
    """Return the rows of a streaming table whose columns are these."""
    return _built(StreamingTable(table=table), columns, "table", checked_label(name, OPERATOR) or "table", **times)


def growing(root: Node, operator: str) -> Node:
    """Return the plan with inputs that will go on: its live ones, or if it has none, all stored ones with times.

    What stored rows promise is forgotten: the rows that follow have promised nothing.
    """
    sources = [node for node in walk(root) if isinstance(node, Source)]
    found = [source for source in sources if isinstance(source, LiveSource)]
    for source in found:
        if not isinstance(source.live, (WatchedFolder, Partitions)):
            raise PlanError(
                f"{operator}: keep_state=True: the rows of {source.label!r} are not there to be read up to now",
                "put them into files: cluster.scan(…), or a folder that is streamed.",
            )
    timed = [] if found else [source for source in sources if source.time is not None]
    if not found and not timed:
        raise PlanError(
            f"{operator}: keep_state=True: no input of this plan has times, so none can go on live",
            "say which column has them, scan(…, start=…), or leave keep_state out.",
        )
    made = {id(source): _as_growing(source, operator) for source in timed}
    return substitute(root, lambda node: made.get(id(node)))


def _as_growing(source: Source, operator: str) -> LiveSource:
    if not isinstance(source, (FileSource, FrameSource)) or isinstance(source, TableSource):
        raise PlanError(
            f"{operator}: keep_state=True: {source.label!r} is neither files nor a frame, which a stream could follow",
            "write its rows to files, and scan these.",
        )
    live = StoredRows(source=source)
    return LiveSource(
        label=source.label,
        columns=source.columns,
        lifetime=source.lifetime,
        paths=(),
        format=source.format if isinstance(source, FileSource) else "frame",
        folder_columns=source.folder_columns if isinstance(source, FileSource) else (),
        live=live,
        live_id=id(live),
        disorder=Disorder(policy="throw"),
    )


def _built(
    live: object,
    columns: Schema,
    file_format: str,
    label: str,
    folder_columns: tuple[str, ...] = (),
    *,
    is_given: bool = False,
    start: object,
    end: object,
    lifetime: str,
    disorder: Disorder,
    keep_late: int,
    keep_time: bool,
    idle_after: Duration | None,
) -> LiveSource:
    if start is None:
        raise PlanError("stream: start= is not given: live rows have times", 'name the column: stream(…, start="ts").')
    read = lifetime_of(columns, start, end, lifetime, OPERATOR, keep_time=keep_time)
    assert read is not None
    built = LiveSource(
        label=label,
        columns=columns,
        lifetime=read,
        paths=(),
        format=file_format,
        folder_columns=folder_columns,
        is_given=is_given,
        live=live,
        live_id=id(live),
        disorder=checked_disorder(disorder, TimeType.of(read.start.dtype, read.start.name), OPERATOR),
        keep_late=at_least_zero(keep_late, "stream: keep_late"),
        idle_after=wall_seconds(idle_after, "stream: idle_after"),
    )
    built.schema.without_time_names(OPERATOR)
    return built


def _peeked(given: Partitions) -> Schema:
    for partition in range(given.count):
        for item in given.open(partition, None):
            rows = item[0] if isinstance(item, tuple) and len(item) == 2 else None
            frame: pl.DataFrame = to_frame(rows, f"stream: partition {partition}")
            return Schema(frame.schema)
    raise PlanError(
        "stream: no partition has rows yet, so the columns are not known",
        'say them: stream(sq.partitions(…), schema={"ts": pl.Datetime("us"), …}).',
    )
