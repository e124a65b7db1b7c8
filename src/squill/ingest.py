"""How data becomes a `Stream`: frames, files, single events, and sources that are pushed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squill.arguments import checked_flag
from squill.listed import ListedEvents
from squill.plan.build.events import events_source
from squill.plan.build.sources import file_source, frame_source
from squill.plan.events import (
    Event,
    adjust,
    drop,
    end_edge,
    interval,
    point,
    punctuation,
    start_edge,
    throw,
)
from squill.plan.expressions import IntoExpression
from squill.plan.json_form import from_json as plan_from_json
from squill.plan.nodes import Disorder
from squill.plan.nodes.sources import KEEP_LATE
from squill.stream import Stream
from squill.time import Duration

if TYPE_CHECKING:
    from squill.pushed import PushedSource

__all__ = [
    "adjust", "drop", "end_edge", "from_events", "from_frame", "from_json", "interval", "point", "punctuation", "scan",
    "source", "start_edge", "throw",
]  # fmt: skip

Names = str | Sequence[str] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def from_frame(
    frame: Any,
    start: IntoExpression | None = None,
    end: IntoExpression | None = None,
    lifetime: str = "point",
    *,
    name: str | None = None,
    keep_time: bool = False,
    sorted_by: Names = None,
    packed: Names = None,
    duration: Duration | None = None,
    unique: Names = None,
    trust: bool = False,
) -> Stream:
    """Return the rows of a table (Polars, Arrow, pandas, dict) as a stream.

    `start` names the time column; without it the data is relational, alive at every instant. With `end`
    events live in [start, end), null being for ever; else they are points, or endless with `lifetime="open"`.

    What `sorted_by=`, `packed=`, `duration=` and `unique=` promise of the rows is checked while they are read, unless
    `trust=True` says that it need not be. Where several shards read them, each checks `unique=` among its own rows.

    Examples
    --------
    >>> import squill as sq
    >>> sq.from_frame({"t": [1, 5], "x": [10, 20]}, start="t").collect()
    shape: (2, 3)
    ┌───────┬─────┬─────┐
    │ start ┆ end ┆ x   │
    │ ---   ┆ --- ┆ --- │
    │ i64   ┆ i64 ┆ i64 │
    ╞═══════╪═════╪═════╡
    │ 1     ┆ 2   ┆ 10  │
    │ 5     ┆ 6   ┆ 20  │
    └───────┴─────┴─────┘
    """
    promises = {"sorted_by": sorted_by, "packed": packed, "duration": duration, "unique": unique, "trust": trust}
    return Stream(frame_source(frame, start, end, lifetime, name, keep_time=keep_time, **promises))


def scan(
    paths: Paths,
    start: IntoExpression | None = None,
    end: IntoExpression | None = None,
    lifetime: str = "point",
    *,
    format: str | None = None,  # noqa: A002
    schema: Mapping[str, Any] | None = None,
    name: str | None = None,
    keep_time: bool = False,
    sorted_by: Names = None,
    packed: Names = None,
    duration: Duration | None = None,
    unique: Names = None,
    trust: bool = False,
) -> Stream:
    """Return the rows of parquet, csv, ndjson or ipc files as a stream; paths may be globs and folders.

    Paths may be addresses (``s3://bucket/clicks/*.parquet``) of whatever pyarrow opens, or fsspec if installed.
    Files are read in pieces, with only the columns and rows that the query needs. Input that is not sorted
    by start is sorted in bounded memory, over temporary files where it is large; `sorted_by=` the start column
    promises that this is not needed, and parquet files say by their statistics what can come out early.
    Types of csv columns are those of their first values; fields of ndjson are found by a look at all lines, and one
    that is not in a line is null. `schema=` says the columns and types of such files instead: nothing is guessed or
    looked for, and what files have beside them is left out. Files without rows are no error beside others.
    Folders below a path (from the first mark of a glob on) that are called ``year=2024`` tell a column that the files
    have not; those that a filter leaves out are not read.
    The folder of a dataset (`ShardedStream.to_storage`) needs no `start`: its manifest says what the rows are.

    What `sorted_by=`, `packed=`, `duration=` and `unique=` promise of the rows is checked while they are read, unless
    `trust=True` says that it need not be. Where several shards read them, each checks `unique=` among its own rows, and
    `sorted_by=` too; between the parts of parquet files that no filter thins out, the borders are looked at before.

    Raises
    ------
    SourceReadError
        A path that matches nothing, a filesystem that is not known, a file that cannot be read or is not whole.
    SchemaChangedError
        Files that do not have the same columns of the same types.

    Examples
    --------
    >>> import squill as sq
    >>> pl.DataFrame({"t": [5, 1], "x": ["b", "a"]}).write_parquet("clicks.parquet")
    >>> sq.scan("*.parquet", start="t").collect().rows()
    [(1, 2, 'a'), (5, 6, 'b')]
    """
    promises = {"sorted_by": sorted_by, "packed": packed, "duration": duration, "unique": unique, "trust": trust}
    return Stream(
        file_source(paths, start, end, lifetime, name, format, keep_time=keep_time, schema=schema, **promises)
    )


def from_json(text: str, *, allow_code: bool = False) -> Stream:
    """Return the stream whose plan `stream.to_json()` wrote.

    Reading runs nothing. A plan with Python functions in it holds them as a pickle, which runs when it is read: it
    is refused unless `allow_code` says that you trust where the text comes from.

    Examples
    --------
    >>> import squill as sq
    >>> text = sq.from_frame({"t": [1, 5], "x": [2, 3]}, start="t").tumbling_window(4).sum("x").to_json()
    >>> sq.from_json(text).collect().rows()
    [(4, 8, 2), (8, 12, 3)]
    """
    checked_flag(allow_code, "from_json: allow_code")
    return Stream(plan_from_json(text, allow_code=allow_code))


def from_events(
    events: Iterable[Event],
    disorder: Disorder | None = None,
    *,
    name: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> ListedEvents:
    """Return single events, in arrival order, as a stream.

    `disorder` says what happens to late ones, as for `sq.source`; `.late` of the stream shows them.

    Examples
    --------
    >>> import squill as sq
    >>> events = [sq.interval(1, 5, x="a"), sq.start_edge(2, x="b"), sq.end_edge(7, 2, x="b")]
    >>> sq.from_events(events).collect()
    shape: (2, 3)
    ┌───────┬─────┬─────┐
    │ start ┆ end ┆ x   │
    │ ---   ┆ --- ┆ --- │
    │ i64   ┆ i64 ┆ str │
    ╞═══════╪═════╪═════╡
    │ 1     ┆ 5   ┆ a   │
    │ 2     ┆ 7   ┆ b   │
    └───────┴─────┴─────┘
    """
    return ListedEvents(events_source(events, disorder if disorder is not None else throw(), name, schema))


def source(
    schema: Mapping[str, Any],
    start: str,
    end: str | None = None,
    lifetime: str = "point",
    *,
    disorder: Disorder | None = None,
    punctuate_every: Duration | None = None,
    max_delay: Duration | None = None,
    keep_late: int = KEEP_LATE,
    name: str | None = None,
    keep_time: bool = False,
) -> PushedSource:
    """Return a stream that the program feeds: `push` rows or frames, `punctuate`, `flush`, `complete`.

    Queries over it run while it is pushed, on the caller's thread (`Stream.subscribe`).

    Parameters
    ----------
    schema
        The columns of the rows that will be pushed, with their types; `start` and `end` name two of them.
    disorder
        What happens to late rows: `sq.throw()` (the default), `sq.drop(wait=…)` or `sq.adjust(wait=…)`. Late
        rows are kept aside in `.late`.
    punctuate_every
        Let time advance, inside a push too, whenever a row passes a multiple of this.
    max_delay
        How long, in wall-clock time, rows may wait for others, so that many small pushes run as one. Time is
        looked at when the source is called. Answers do not change.
    keep_late
        How many late rows `.late` keeps, the newest (100,000 unless given); `.counts` has the number of all.

    Examples
    --------
    >>> import squill as sq
    >>> readings = sq.source({"t": pl.Int64, "x": pl.Int64}, start="t", disorder=sq.drop(wait=5))
    >>> largest = readings.tumbling_window(10).max("x")
    >>> subscription = largest.subscribe(lambda frame: print(frame.rows()), emit="closed")
    >>> readings.push({"t": [1, 7, 4], "x": [10, 30, 20]})
    >>> readings.push({"t": 26, "x": 40})
    [(10, 20, 30)]
    >>> readings.push({"t": 3, "x": 99})
    >>> readings.late.rows()
    [(3, 4, 99, 18)]
    """
    from squill.pushed import PushedSource

    return PushedSource.create(
        schema,
        start,
        end,
        lifetime,
        disorder=disorder if disorder is not None else throw(),
        punctuate_every=punctuate_every,
        max_delay=max_delay,
        keep_late=keep_late,
        name=name,
        keep_time=keep_time,
    )
