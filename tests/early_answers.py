"""What the early answers of a query must be: the reference's over the rows there, by the definitions of assignments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import polars as pl

import squill as sq
from squill.plan.assignment import Assignment, Columns, Exponential, Fractions, Hashed, Rows, Stratified
from squill.plan.node import Node, walk
from squill.plan.nodes import FrameSource
from squill.plan.rebuild import substitute
from squill.progress import at_start
from squill.runtime.progressive.early import EarlyAnswer
from squill.stream import Stream
from squill.testing import assert_same_events, reference

__all__ = ["Expected", "assert_answers", "expected_answers", "hashed_steps", "over"]

Interval = tuple[int, int | None]
"""When a row is there."""


def there(source: FrameSource, assignment: Assignment) -> list[Interval]:
    """Return when each row is there, straight from the definitions."""
    if isinstance(assignment, Columns):
        starts = source.frame[assignment.start].to_list()
        ends = [None] * len(starts) if assignment.end is None else source.frame[assignment.end].to_list()
        return list(zip(starts, ends, strict=True))
    return [(step, None) for step in first_steps(source.frame, assignment)]


def first_steps(frame: pl.DataFrame, assignment: Assignment) -> list[int]:
    numbers = range(frame.height)
    match assignment:
        case Rows(k):
            return [number // k for number in numbers]
        case Fractions(n):
            return [number * n // frame.height for number in numbers]
        case Exponential(size, ratio):
            sizes = [int(size * ratio**step) for step in range(12)]
            return [step for step, size in enumerate(sizes) for _ in range(size)][: frame.height]
        case Stratified(key, k):
            keys = frame.select(key).rows()
            return [keys[:number].count(keys[number]) // k for number in numbers]
        case Hashed():
            return hashed_steps(frame, assignment)
    return [0] * frame.height


def hashed_steps(frame: pl.DataFrame, assignment: Hashed) -> list[int]:
    """Return the steps that the engine gives; which they are is its own business, but equal values share one."""
    first: dict[int, int] = {}
    for early in sq.from_frame(frame.with_row_index("row")).progressive(assignment):
        for number in early.frame["row"]:
            first.setdefault(number, early.progress)
    steps = [first[number] for number in range(frame.height)]
    values = frame.select(assignment.names).rows()
    assert all(0 <= step < assignment.steps for step in steps)
    assert len(set(zip(values, steps, strict=True))) == len(set(values))
    return steps


def declared(assignment: Assignment, intervals: list[Interval]) -> set[int]:
    """Return the points at which there must be an answer."""
    points = {point for interval in intervals for point in interval if point is not None}
    if not isinstance(assignment, Columns):
        steps = assignment.n if isinstance(assignment, Fractions) else 0
        steps = assignment.steps if isinstance(assignment, Hashed) else steps
        points |= set(range(max([steps, *(point + 1 for point in points)])))
    return points


def coarse(interval: Interval, by: int) -> Interval:
    start, end = interval
    return start // by * by, None if end is None else -(-end // by) * by


Expected = list[tuple[int, pl.DataFrame, float]]
"""The point of each answer, its rows, and which part of the input rows is there."""


def expected_answers(query: Stream, chosen: Sequence[Assignment], coarsen: int) -> Expected:
    """Return (point, answer, fraction) of each early answer, from the reference over the rows there."""
    sources = [node for node in walk(query.plan) if isinstance(node, FrameSource)]
    intervals = [
        [coarse(interval, coarsen) for interval in there(source, assignment)]
        for source, assignment in zip(sources, chosen, strict=True)
    ]
    points = {
        coarse((point, None), coarsen)[0]
        for assignment, found in zip(chosen, intervals, strict=True)
        for point in declared(assignment, found)
    }
    moving = [found for found, item in zip(intervals, chosen, strict=True) if item != at_start()] or intervals
    answers = []
    for point in sorted(points or {0}):
        alive = [[is_there(interval, point) for interval in found] for found in intervals]
        counted = [is_there(interval, point) for found in moving for interval in found]
        fraction = sum(counted) / len(counted) if counted else 1.0
        answers.append((point, reference.frame(over(query.plan, sources, alive)), fraction))
    return answers


def is_there(interval: Interval, point: int) -> bool:
    start, end = interval
    return start <= point and (end is None or point < end)


def over(plan: Node, sources: Sequence[FrameSource], alive: Sequence[Iterable[bool]]) -> Node:
    """Return the plan over the rows that are there."""
    kept = {
        id(source): replace(source, frame=source.frame.filter(pl.Series(mask, dtype=pl.Boolean)))
        for source, mask in zip(sources, alive, strict=True)
    }
    return substitute(plan, lambda node: kept.get(id(node)))


def assert_answers(found: Iterable[EarlyAnswer], expected: Expected) -> None:
    """See that these are the answers, each with its point, its part of the rows and what changed."""
    last = expected[-1][0]
    shown = pl.DataFrame()
    answers = list(found)
    assert [early.progress for early in answers] == [point for point, _, _ in expected]
    for early, (point, answer, fraction) in zip(answers, expected, strict=True):
        try:
            assert early.is_final == (point == last)
            assert early.fraction == fraction
            assert_same_events(early.frame, answer, scale=1e3)
            assert_changes(early, shown)
        except AssertionError as error:
            error.add_note(f"at progress {point}")
            raise
        shown = early.frame


def assert_changes(early: EarlyAnswer, before: pl.DataFrame) -> None:
    """See that the changes lead from the answer before to this one, and hold nothing twice."""
    changes = early.changes
    payload = changes.drop("diff")
    assert payload.unique().height == payload.height
    assert 0 not in changes["diff"]
    names = payload.columns
    counts = [
        frame.select(*names, diff=pl.lit(sign)) for frame, sign in ((before, -1), (early.frame, 1)) if frame.height
    ]
    net = pl.concat([*counts, changes.select(*names, -pl.col("diff").cast(pl.Int32))], how="vertical_relaxed")
    assert (net.group_by(names).agg(pl.col("diff").sum())["diff"] == 0).all()
