"""The reference interpreter: what a query means, computed slowly and plainly.

`run` takes any stream or plan and returns its answer as folded rows, straight from the definitions: one
function per kind of node, from rows to rows, without clocks, batches or state. The engine must give the
same multiset of rows; `frame` returns the answer shaped as `Stream.collect()` does.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from squill.errors import UnsupportedOperatorError
from squill.plan.node import Node, walk
from squill.plan.nodes import Aggregate, EventsSource, FileSource, FrameSource, SnapshotApply, UserOperator
from squill.stream import Stream
from squill.testing.reference.aggregates import aggregate
from squill.testing.reference.operators import OPERATORS
from squill.testing.reference.patterns import PATTERNS
from squill.testing.reference.rows import Row, time_series, typed_frame
from squill.testing.reference.sources import events_source, file_source, frame_source
from squill.testing.reference.two_inputs import TWO_INPUTS
from squill.testing.reference.user import snapshot_apply, user_operator
from squill.time import TimeType

__all__ = ["INTERPRETERS", "Row", "frame", "run"]

INTERPRETERS: dict[type[Node], Callable[..., list[Row]]] = {
    **OPERATORS,
    **TWO_INPUTS,
    **PATTERNS,
    Aggregate: aggregate,
    EventsSource: events_source,
    FileSource: file_source,
    FrameSource: frame_source,
    SnapshotApply: snapshot_apply,
    UserOperator: user_operator,
}


def run(query: Stream | Node) -> list[Row]:
    """Return the answer as folded rows, ordered by start, then end.

    Relational rows live from minus infinity to infinity. A row of `per_window` lives for the hop that begins
    at its window's end.

    Examples
    --------
    >>> clicks = sq.from_frame({"t": [1, 2, 4]}, start="t")
    >>> run(clicks.sliding_window(3).count())
    [Row(1, 2, count=1), Row(2, 4, count=2), Row(4, 5, count=2), Row(5, 7, count=1)]
    """
    node = query.plan if isinstance(query, Stream) else query
    answers: dict[int, list[Row]] = {}
    for step in walk(node):
        if type(step) not in INTERPRETERS:
            raise UnsupportedOperatorError(f"the reference interpreter has no meaning for {step.name}")
        answers[id(step)] = INTERPRETERS[type(step)](step, *(answers[id(parent)] for parent in step.inputs))
    return sorted(answers[id(node)], key=lambda row: (row.start, row.end))


def frame(query: Stream | Node) -> pl.DataFrame:
    """Return the answer as `Stream.collect()` shapes it: start, end, then the payload, ordered by start.

    Times have the input's type, null for infinity. Relational answers and those of `per_window` come without
    start and end.
    """
    node = query.plan if isinstance(query, Stream) else query
    rows = run(node)
    payload = typed_frame([row.payload for row in rows], node.schema)
    if node.time is None or node.properties.per_window:
        return payload
    return pl.DataFrame([*_times(rows, node.time), *payload.get_columns()])


def _times(rows: list[Row], time: TimeType) -> tuple[pl.Series, pl.Series]:
    starts, ends = (row.start for row in rows), (row.end for row in rows)
    return time_series("start", starts, time), time_series("end", ends, time)
