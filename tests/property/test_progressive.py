"""Early answers are the reference's answers over the rows that are there, for any batch size and shard count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import SquillError
from squill.plan.assignment import Assignment, Columns, Exponential, Fractions, Hashed, Rows, Stratified
from squill.plan.node import Node, walk
from squill.plan.nodes import FrameSource, Source
from squill.plan.rebuild import substitute
from squill.progress import at_start, columns, exponential, fractions, hashed, rows, stratified
from squill.runtime.progressive import in_process
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.small_batches import tiny_batches
from tests.strategies import PAYLOAD, RELATIONAL_STEPS, VALUES, describe, queries
from tests.strategies_two_inputs import relational_joins

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
thorough = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=SLOW,
    phases=[Phase.explicit, Phase.generate],
)

POINTS = {"from": pl.Int64, "to": pl.Int64}
Interval = tuple[int, int | None]
"""When a row is there."""


@st.composite
def samples(draw: st.DrawFn) -> Stream:
    """Draw relational data whose rows say when they come and perhaps go, some of them never there."""
    payload = st.fixed_dictionaries(
        {**VALUES, "from": st.integers(0, 5), "to": st.one_of(st.none(), st.none(), st.integers(0, 4))}
    )
    drawn = draw(st.lists(payload, max_size=10))
    for row in drawn:
        row["to"] = None if row["to"] is None else row["from"] + row["to"]
    return sq.from_frame(pl.DataFrame(drawn, schema={**PAYLOAD, **POINTS}))


def assignments(source: Source) -> st.SearchStrategy[Assignment]:
    plain = st.one_of(
        st.integers(1, 5).map(rows),
        st.integers(1, 4).map(fractions),
        st.sampled_from([at_start(), exponential(1, 2), exponential(2, 1.5), hashed("k", 3), hashed(["k", "s"], 3)]),
        st.integers(1, 2).map(lambda k: stratified("k", k)),
    )
    if "from" not in source.columns:
        return plain
    return st.one_of(st.sampled_from([columns("from", "to"), columns("from", "to"), columns("from")]), plain)


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


def expected_answers(query: Stream, chosen: list[Assignment], coarsen: int) -> Expected:
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


def over(plan: Node, sources: list[FrameSource], alive: list[list[bool]]) -> Node:
    kept = {
        id(source): replace(source, frame=source.frame.filter(pl.Series(mask, dtype=pl.Boolean)))
        for source, mask in zip(sources, alive, strict=True)
    }
    return substitute(plan, lambda node: kept.get(id(node)))


def assert_answers(found: Iterator[Any], expected: Expected) -> None:
    last = expected[-1][0]
    shown = pl.DataFrame()
    answers = list(found)
    assert [early.progress for early in answers] == [point for point, _, _ in expected]
    for early, (point, answer, fraction) in zip(answers, expected, strict=True):
        note(f"progress {point}")
        assert early.is_final == (point == last)
        assert early.fraction == fraction
        assert_same_events(early.frame, answer, scale=1e3)
        assert_changes(early, shown)
        shown = early.frame


def assert_changes(early: Any, before: pl.DataFrame) -> None:
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


def assert_progressive(query: Stream, data: st.DataObject) -> None:
    sources = [node for node in walk(query.plan) if isinstance(node, Source)]
    assume(all(isinstance(source, FrameSource) and source.lifetime is None for source in sources))
    chosen = [data.draw(assignments(source)) for source in sources]
    assume(len({item for item in chosen if isinstance(item, Hashed)}) <= 1)
    coarsen = data.draw(st.sampled_from([1, 1, 2]))
    note(describe(query))
    note(f"{list(map(str, chosen))}, coarsen={coarsen}")
    try:
        expected = expected_answers(query, chosen, coarsen)
    except SquillError:
        assume(False)
    names = ["frame", *(f"frame {number}" for number in range(2, len(chosen) + 1))]
    given_to = dict(zip(names, chosen, strict=False))
    with pytest.MonkeyPatch.context() as patch:
        for batch_rows in (1, 3, in_process.BATCH_ROWS):
            note(f"batch_rows={batch_rows}")
            patch.setattr(in_process, "BATCH_ROWS", batch_rows)
            assert_answers(iter(query.progressive(given_to, coarsen=coarsen)), expected)
    for cores in (1, 2, 4):
        note(f"{cores} cores")
        with sq.local(cores=cores) as cluster:
            assert_answers(iter(query.progressive(given_to, coarsen=coarsen, on=cluster)), expected)


@pytest.fixture(scope="module", autouse=True)
def _tiny_batches() -> Iterator[None]:
    """So small that every queue fills up, every mailbox blocks and every step is cut."""
    with pytest.MonkeyPatch.context() as patch:
        tiny_batches(patch)
        yield


@thorough
@given(queries(steps=RELATIONAL_STEPS, sources=samples()), st.data())
def test_chains(query: Stream, data: st.DataObject) -> None:
    assert_progressive(query, data)


@settings(thorough, max_examples=10)
@given(relational_joins(), st.data())
def test_joins(query: Stream, data: st.DataObject) -> None:
    assert_progressive(query, data)
