"""What these tests compare: the rows of a query as plain tuples, from every batch size."""

from __future__ import annotations

from typing import Any

import squill as sq
from squill.stream import Stream

__all__ = ["edges", "intervals", "points", "rows"]

Row = tuple[Any, ...]


def rows(query: Stream) -> list[Row]:
    """Return the sorted answer, which must not depend on how the input is cut."""
    answers = [query.collect(sort=True, batch_rows=size).rows() for size in (1, 2, None)]
    # By their text, because NaN is not equal to itself.
    assert repr(answers[0]) == repr(answers[1]) == repr(answers[2])
    return answers[0]


def points(*times: int, **columns: Any) -> Stream:
    return sq.from_frame({"t": list(times), **columns}, start="t")


def intervals(*lifetimes: tuple[int, int | None], **columns: Any) -> Stream:
    starts, ends = [start for start, _ in lifetimes], [end for _, end in lifetimes]
    return sq.from_frame({"t": starts, "u": ends, **columns}, start="t", end="u")


def edges(*lifetimes: tuple[int, int | None], x: list[Any] | None = None) -> Stream:
    """Return events told by start edges and end edges, in time order."""
    values = x if x is not None else ["a"] * len(lifetimes)
    told: list[tuple[int, int, Any]] = []
    for (start, end), value in zip(lifetimes, values, strict=True):
        told.append((start, 1, sq.start_edge(start, x=value)))
        if end is not None:
            told.append((end, 0, sq.end_edge(end, start, x=value)))
    return sq.from_events([event for _, _, event in sorted(told, key=lambda item: item[:2])])
