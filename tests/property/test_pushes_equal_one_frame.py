"""Any cut into pushes and any punctuations give the answer of one frame, whatever form it is delivered in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.plan.nodes import Disorder
from squill.stream import Stream
from squill.testing import assert_same_events

SCHEMA = {"t": pl.Int64, "u": pl.Int64, "k": pl.Int64}
QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "as it is": lambda s: s,
    "where": lambda s: s.where(sq.col("k") > 0),
    "count": lambda s: s.count(),
    "grouped window": lambda s: s.group_apply("k", lambda g: g.hopping_window(6, 2).count()),
    "endless": lambda s: s.with_duration(None).group_aggregate("k", n=sq.count()),
    "extend": lambda s: s.extend(3),
    "per window": lambda s: s.tumbling_window(4).count().per_window(),
}

rows = st.lists(
    st.tuples(st.integers(-10, 30), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 2)), max_size=12
)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[pl.DataFrame, Disorder]:
    """Draw a frame, in time order or, where the policy waits long enough for all, in any."""
    drawn = draw(rows)
    waits = draw(st.booleans())
    if not waits:
        drawn.sort(key=lambda row: row[0])
    frame = pl.DataFrame(
        [(t, None if length is None else t + length, k) for t, length, k in drawn], schema=SCHEMA, orient="row"
    )
    return frame, sq.drop(wait=40) if waits else sq.throw()


@st.composite
def cuts(draw: st.DrawFn, size: int) -> list[int]:
    inner = draw(st.lists(st.integers(0, size), max_size=5))
    return [0, *sorted(inner), size]


def folded(changes: list[pl.DataFrame]) -> Counter[tuple[Any, ...]]:
    """Return (time, payload) → the sum of diffs, where it is not zero."""
    total: Counter[tuple[Any, ...]] = Counter()
    for frame in changes:
        for time, diff, *payload in frame.rows():
            total[(time, *payload)] += diff
    return Counter({key: count for key, count in total.items() if count})


def changes_of(answer: pl.DataFrame) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for start, end, *payload in answer.rows():
        total[(start, *payload)] += 1
        if end is not None:
            total[(end, *payload)] -= 1
    return Counter({key: count for key, count in total.items() if count})


def run(
    query: Callable[[Stream], Stream], emit: str, data: st.DataObject, given_input: tuple[pl.DataFrame, Disorder]
) -> list[pl.DataFrame]:
    frame, disorder = given_input
    every = data.draw(st.sampled_from([None, 1, 3, 100]), label="punctuate_every")
    delay = data.draw(st.sampled_from([None, "1h"]), label="max_delay")
    source = sq.source(SCHEMA, start="t", end="u", disorder=disorder, punctuate_every=every, max_delay=delay)
    frames: list[pl.DataFrame] = []
    query(source).subscribe(frames.append, emit=emit)
    bounds = data.draw(cuts(frame.height), label="cuts")
    for low, high in pairwise(bounds):
        source.push(frame.slice(low, high - low))
        if data.draw(st.booleans(), label="punctuate"):
            # No later than the earliest row to come, or it would make that late.
            later = frame["t"].slice(high).min()
            source.punctuate(-20 if later is None else min(int(later), 50))  # type: ignore[arg-type]
        if data.draw(st.booleans(), label="flush"):
            source.flush()
    source.complete()
    return frames


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), name=st.sampled_from(sorted(QUERIES)), given_input=inputs())
def test_closed_rows_are_the_answer_of_one_frame(
    data: st.DataObject, name: str, given_input: tuple[pl.DataFrame, Disorder]
) -> None:
    query = QUERIES[name]
    expected = query(sq.from_frame(given_input[0], start="t", end="u")).collect()
    frames = run(query, "closed", data, given_input)
    note(str(frames))
    assert_same_events(pl.concat([expected.clear(), *frames]), expected)
    if "end" in expected.columns:
        ends = [end for frame in frames for end in frame["end"].to_list()]
        finite = [end for end in ends if end is not None]
        assert ends[: len(finite)] == sorted(finite)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), name=st.sampled_from(sorted(set(QUERIES) - {"per window"})), given_input=inputs())
def test_changes_sum_up_to_the_answer_of_one_frame(
    data: st.DataObject, name: str, given_input: tuple[pl.DataFrame, Disorder]
) -> None:
    query = QUERIES[name]
    expected = query(sq.from_frame(given_input[0], start="t", end="u")).collect()
    frames = run(query, "changes", data, given_input)
    assert folded(frames) == changes_of(expected)
    order = [(time, diff) for frame in frames for time, diff in frame.select("time", "diff").rows()]
    assert order == sorted(order)
