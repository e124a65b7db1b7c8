"""How large a plan's inputs and movements may be, told without reading a row: what `explain` shows after ``~``.

What is known are the rows of frames, and what files say of themselves: of parquet the row groups that the filter
may keep, and the bytes of the columns that are read. The rest are rules, meant to tell a movement of a million rows
from one of a thousand:

- a filter, pushed into a source or not, keeps a third of the rows (`KEPT_BY_FILTER`);
- an aggregate, `distinct` or a pattern gives as many rows as it gets, a relational aggregate without keys one;
- a join gives as many rows as the larger input has, a union all of them, a broadcast one copy per receiving shard;
- every other operator gives as many rows as it gets;
- a row that moves has 16 bytes of times, and its columns; text is as long as on average in the frame or in the first
  file, where the column has that name, and 16 bytes otherwise;
- of csv and ndjson the bytes are known, and lines are as long as values of their types usually are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow.parquet as pq

from squill.engine.row_groups import row_groups
from squill.plan.build.files import scan_files
from squill.plan.build.folder_columns import paths_to_read
from squill.plan.build.locations import file_size, open_file, read_errors
from squill.plan.fragments import Channel, Fragment, ShardedPlan, explain_plan, fragments_of, sources_of
from squill.plan.node import Node, walk
from squill.plan.nodes import Aggregate, EventsSource, FileSource, FrameSource, Source, TwoInputs, Union, Where
from squill.plan.nodes.movement import ShardInput
from squill.plan.nodes.tables import CachedSource, ElsewhereSource, TableSource
from squill.plan.paths import is_local
from squill.plan.routing import BroadcastRouting
from squill.plan.schema import Schema

__all__ = ["KEPT_BY_FILTER", "Size", "explain_with_sizes", "known_rows", "sizes_of"]

KEPT_BY_FILTER = 1 / 3
TIMES_BYTES = 16
TEXT_BYTES = 16.0
LIST_VALUES = 4
LINE_TEXT = {pl.Date: 10, pl.Datetime: 26, pl.Boolean: 5}
"""How long values of a type are in a line of csv; others are as long as text is thought to be, numbers half of it."""
SAMPLED_FILES = 64
"""Of more files only so many are looked at, spread over all; explain is to be quick."""
COUNTED_FILES = 1_000
"""Of more files it is not said how many rows are to be read: to know it would take too long."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """An estimate. ``text`` has the average bytes of columns of no fixed width; ``is_exact`` when rows were counted."""

    rows: float
    bytes: float
    text: Mapping[str, float] = field(default_factory=dict)
    is_exact: bool = False

    def __str__(self) -> str:
        return f"~{self.rows:,.0f} row{'' if round(self.rows) == 1 else 's'}, ~{_shown(self.bytes)}"


def _shown(count: float) -> str:
    """Return bytes in the largest unit that they reach.

    Examples
    --------
    >>> [_shown(count) for count in (0, 999, 1_000, 2_345_678, 5e12)]
    ['0 B', '999 B', '1.0 kB', '2.3 MB', '5,000.0 GB']
    """
    if count < 1_000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1_000
        if count < 1_000:
            return f"{count:.1f} {unit}"
    return f"{count / 1_000:,.1f} GB"


def explain_with_sizes(root: Node) -> str:
    """Return the plan as text, fragment by fragment, with the estimates of what is read and moved."""
    plan = fragments_of(root)
    sizes = sizes_of(plan)

    def note(item: Node | Channel | Fragment) -> str:
        if isinstance(item, Node) and (isinstance(item, ShardInput) or not isinstance(item, Source)):
            return ""
        size = sizes(item)
        return "unknown size" if size is None else str(size)

    return explain_plan(plan, note)


def sizes_of(plan: ShardedPlan) -> Callable[[Node | Channel | Fragment], Size | None]:
    """Return the size of a source, of a channel, or of a fragment's rows; None where nothing can be said."""
    found: dict[int, Size | None] = {}
    sent: dict[int, Size | None] = {}
    for fragment in plan.fragments:
        for node in walk(fragment.root):
            found[id(node)] = sent[node.channel] if isinstance(node, ShardInput) else _size(node, found)
        rows = _moved(found[id(fragment.root)], fragment.root.schema)
        found[id(fragment)] = rows
        for channel in fragment.outputs:
            sent[channel.number] = found[id(channel)] = _received(rows, channel)
    return lambda item: found[id(item)]


def known_rows(plan: ShardedPlan) -> int | None:
    """Return how many rows the plan's shards are going to read; None where only reading tells."""
    total = 0.0
    for fragment in plan.fragments:
        for source in sources_of(fragment.root):
            if isinstance(source, ShardInput):
                continue
            size = _source_size(source, COUNTED_FILES)
            if size is None or not size.is_exact:
                return None
            total += size.rows
    return int(total)


# -- rules ------------------------------------------------------------------------------------------------------


def _size(node: Node, found: Mapping[int, Size | None]) -> Size | None:
    if isinstance(node, Source):
        return _source_size(node, SAMPLED_FILES)
    inputs = [size for parent in node.inputs if (size := found[id(parent)]) is not None]
    if len(inputs) < len(node.inputs):
        return None
    counts = [size.rows for size in inputs]
    match node:
        case Where():
            rows = counts[0] * KEPT_BY_FILTER
        case Union():
            rows = sum(counts)
        case TwoInputs():
            rows = max(counts)
        case Aggregate(keys=()) if node.is_relational:
            rows = min(counts[0], 1)
        case _:
            rows = counts[0]
    text = {name: width for size in reversed(inputs) for name, width in size.text.items() if name in node.schema}
    return Size(rows=rows, bytes=rows * _row_bytes(node.schema, text), text=text)


def _moved(size: Size | None, schema: Schema) -> Size | None:
    """Return the size of rows as they are sent: whatever they were read from."""
    if size is None:
        return None
    return Size(rows=size.rows, bytes=size.rows * _row_bytes(schema, size.text), text=size.text)


def _received(size: Size | None, channel: Channel) -> Size | None:
    if size is None:
        return None
    copies = len(channel.routing.targets(0)) if isinstance(channel.routing, BroadcastRouting) else 1
    return Size(rows=size.rows * copies, bytes=size.bytes * copies, text=size.text)


def _row_bytes(schema: Schema, text: Mapping[str, float]) -> float:
    return TIMES_BYTES + sum(_width(dtype, text.get(name, TEXT_BYTES)) for name, dtype in schema.items())


def _width(dtype: pl.DataType, text: float = TEXT_BYTES) -> float:
    match dtype:
        case pl.Boolean() | pl.Int8() | pl.UInt8() | pl.Null():
            return 1
        case pl.Int16() | pl.UInt16():
            return 2
        case pl.Int32() | pl.UInt32() | pl.Float32() | pl.Date() | pl.Categorical() | pl.Enum():
            return 4
        case pl.Decimal() | pl.Int128():
            return 16
        case pl.String() | pl.Binary():
            return text
        case pl.List(inner=inner):
            return LIST_VALUES * _width(inner)  # type: ignore[arg-type]
        case pl.Array(inner=inner, size=size):
            return size * _width(inner)  # type: ignore[arg-type]
        case pl.Struct(fields=fields):
            return sum((_width(entry.dtype) for entry in fields), 0.0)  # type: ignore[arg-type]
    return 8


# -- sources ----------------------------------------------------------------------------------------------------


def _source_size(source: Source, looked_at: int) -> Size | None:
    match source:
        case FrameSource():
            size = _frame_size(source)
        case CachedSource() if source.stored is not None:
            rows = sum(source.stored.rows)
            size = Size(rows=rows, bytes=rows * _row_bytes(source.schema, {}), is_exact=True)
        case TableSource():
            return None
        case FileSource():
            size = _files_size(source, looked_at)
        case EventsSource():
            rows = len(source.events)
            size = Size(rows=rows, bytes=rows * _row_bytes(source.schema, {}), is_exact=True)
        case ElsewhereSource():
            plan = fragments_of(source.stream.plan)
            return sizes_of(plan)(plan.answer)
        case _:
            return None
    if getattr(source, "predicate", None) is None:
        return size
    return Size(rows=size.rows * KEPT_BY_FILTER, bytes=size.bytes, text=size.text)


def _frame_size(source: FrameSource) -> Size:
    rows = source.frame.height
    names = {*source.schema, *(source.lifetime.roots if source.lifetime is not None else ())}
    sizes = {name: source.frame[name].estimated_size() for name in source.frame.columns if name in names}
    text = {name: sizes[name] / rows for name in _texts(source.schema) if rows and name in sizes}
    return Size(rows=rows, bytes=sum(sizes.values()), text=text, is_exact=True)


def _files_size(source: FileSource, looked_at: int) -> Size:
    paths = paths_to_read(source)
    step = max(1, -(-len(paths) // looked_at))
    chosen = paths[::step]
    counted = [_counted(path, source) for path in chosen]
    sizes = [_guessed(path, source) if size is None else size for path, size in zip(chosen, counted, strict=True)]
    factor = len(paths) / max(len(chosen), 1)
    return Size(
        rows=factor * sum(rows for rows, _ in sizes),
        bytes=factor * sum(size for _, size in sizes),
        text=_average_text(source) if source.format == "parquet" else {},
        is_exact=step == 1 and None not in counted,
    )


def _counted(path: str, source: FileSource) -> tuple[float, float] | None:
    """Return the rows, and the bytes that are read of them, as the file tells; None when it does not."""
    if source.format == "parquet":
        groups = row_groups(path, source, source.needed)
        return None if groups is None else (sum(group.rows for group in groups), sum(group.size for group in groups))
    if source.format != "ipc" or not is_local(path):
        return None
    try:
        rows = int(scan_files(path, "ipc").select(pl.len()).collect().item())
    except read_errors():
        return None
    return rows, file_size(path) * _share(source)


def _guessed(path: str, source: FileSource) -> tuple[float, float]:
    size = file_size(path)
    if source.format in ("parquet", "ipc"):
        return size / max(_row_bytes(source.columns, {}) - TIMES_BYTES, 1), size * _share(source)
    names = sum(len(name) + 4 for name in source.columns) if source.format == "ndjson" else 0
    line = names + sum(1 + _line_width(dtype) for dtype in source.columns.values())
    return size / max(line, 1), size


def _line_width(dtype: pl.DataType) -> float:
    return LINE_TEXT.get(type(dtype), TEXT_BYTES / 2 if dtype.is_numeric() else TEXT_BYTES)


def _share(source: FileSource) -> float:
    """Return which part of a row the columns that are read are."""
    widths = {name: _width(dtype) for name, dtype in source.columns.items()}
    return sum(widths[name] for name in source.needed) / max(sum(widths.values()), 1)


def _average_text(source: FileSource) -> dict[str, float]:
    """Return how long text is in the first file."""
    texts = set(_texts(source.schema))
    if not texts or not source.paths:
        return {}
    try:
        with open_file(source.paths[0]) as file:
            metadata = pq.read_metadata(file)
    except read_errors():
        return {}
    sizes = dict.fromkeys(texts, 0)
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            if chunk.path_in_schema in texts:
                sizes[chunk.path_in_schema] += chunk.total_uncompressed_size
    return {name: size / metadata.num_rows for name, size in sizes.items() if metadata.num_rows}


def _texts(schema: Schema) -> Iterator[str]:
    return (name for name, dtype in schema.items() if isinstance(dtype, (pl.String, pl.Binary)))
