"""Two pushed sources, any cut, any punctuations, either completed first: the answer of collect(); early answers too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
from hypothesis import given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.property.test_pushes_equal_one_frame import changes_of, folded

SCHEMA = {"t": pl.Int64, "u": pl.Int64, "k": pl.Int64}
TWO: dict[str, Callable[[Stream, Stream], Stream]] = {
    "join": lambda a, b: a.join(b.rename({"k": "j"}), left_on="k", right_on="j"),
    "join of windows": lambda a, b: a.with_duration(5).join(b.with_duration(5), on="k"),
    "union": lambda a, b: a.union(b).group_aggregate("k", n=sq.count()),
    "not exists": lambda a, b: a.where_not_exists(b, on="k"),
    "joined with itself": lambda a, b: a.join(a.where(sq.col("k") > 0).union(b), on="k"),
}
ONE: dict[str, Callable[[Stream], Stream]] = {
    "as it is": lambda s: s,
    "count": lambda s: s.count(),
    "grouped window": lambda s: s.group_apply("k", lambda g: g.hopping_window(6, 2).aggregate(n=sq.count())),
    "largest": lambda s: s.tumbling_window(4).aggregate(k=sq.max("k")),
    "sessions": lambda s: s.session_window(3).count(),
    "stitched": lambda s: s.stitch(),
    "distinct": lambda s: s.distinct(),
    "self join": lambda s: s.join(s.shift(2), on="k"),
}

rows = st.lists(st.tuples(st.integers(-5, 20), st.one_of(st.none(), st.integers(1, 9)), st.integers(0, 2)), max_size=8)


def frame_of(drawn: list[tuple[int, int | None, int]]) -> pl.DataFrame:
    return pl.DataFrame([(t, None if n is None else t + n, k) for t, n, k in drawn], schema=SCHEMA, orient="row")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), name=st.sampled_from(sorted(TWO)), emit=st.sampled_from(["closed", "changes"]))
def test_two_pushed_sources_give_the_answer_of_stored_ones(data: st.DataObject, name: str, emit: str) -> None:
    frames = [frame_of(sorted(data.draw(rows, label=label), key=lambda row: row[0])) for label in ("left", "right")]
    expected = TWO[name](*(sq.from_frame(frame, start="t", end="u") for frame in frames)).collect()
    delays = [data.draw(st.sampled_from([None, "1h"])) for _ in frames]
    sources = [sq.source(SCHEMA, start="t", end="u", max_delay=delay) for delay in delays]
    found: list[pl.DataFrame] = []
    TWO[name](*sources).subscribe(
        found.append, emit=emit, speculate=emit == "changes" and data.draw(st.booleans()), timer=False
    )
    left = [list(frame.iter_slices(data.draw(st.integers(1, 4), label="cut"))) for frame in frames]
    while any(left):
        turn = data.draw(st.sampled_from([i for i in range(2) if left[i]]), label="who")
        sources[turn].push(left[turn].pop(0))
        if not left[turn]:
            sources[turn].complete()
        elif data.draw(st.booleans(), label="punctuate"):
            sources[turn].punctuate(left[turn][0]["t"][0])
    for source, frame in zip(sources, frames, strict=True):
        if frame.is_empty():
            source.complete()
    note(str(found))
    if emit == "closed":
        assert_same_events(pl.concat([expected.clear(), *found]), expected)
    else:
        assert folded(found) == changes_of(expected)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), name=st.sampled_from(sorted(ONE)), drawn=rows, wait=st.sampled_from([0, 3, 40]))
def test_early_answers_are_those_over_all_rows_pushed_so_far(
    data: st.DataObject, name: str, drawn: list[tuple[int, int | None, int]], wait: int
) -> None:
    if wait < 40:
        drawn.sort(key=lambda row: row[0])
    frame = frame_of(drawn)
    source = sq.source(SCHEMA, start="t", end="u", disorder=sq.drop(wait=wait))
    sent: list[pl.DataFrame] = []
    ONE[name](source).subscribe(sent.append, speculate=True)

    def expected(height: int) -> Counter[tuple[Any, ...]]:
        return changes_of(ONE[name](sq.from_frame(frame.head(height), start="t", end="u")).collect())

    height = 0
    while height < frame.height:
        size = data.draw(st.integers(1, 4), label="cut")
        source.push(frame.slice(height, size))
        height = min(height + size, frame.height)
        assert folded(sent) == expected(height)
    source.complete()
    assert folded(sent) == expected(height)
