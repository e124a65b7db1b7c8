"""Patterns with functions give the reference's answer, compiled and as plain Python, however rows are cut.

Random patterns without functions are drawn among the other steps of `tests.strategies`.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import squill as sq
from squill.plan.pattern import Pattern
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.property.test_engine_equals_reference import BATCH_ROWS, thorough
from tests.property.test_state_round_trip import collect_with_restarts
from tests.strategies import describe

p = sq.pattern
A, B, C = (sq.col("kind") == kind for kind in "abc")

events = st.lists(
    st.tuples(
        st.integers(0, 25), st.sampled_from("aabbbc"), st.sampled_from([0, 0, 1, 2]), st.sampled_from([1, 2, 5, None])
    ),
    max_size=16,
)


def stream_of(rows: list[tuple[int, str, int, int | None]]) -> Stream:
    columns: dict[str, Any] = {"t": pl.Int64, "kind": pl.String, "u": pl.Int64, "x": pl.Int64}
    return sq.from_frame(pl.DataFrame(rows, schema=columns, orient="row"), start="t")


def total(total: int, x: int) -> int:
    return total + x


# Few, because each is compiled; the random part is the data, and how it is asked for.
COMPILED: dict[str, Pattern] = {
    "sum": p.seq(A, p.star(p.one(B, total=total, last="x")), C).with_registers(total=0),
    "rising": p.seq(p.any(low="x", first="kind"), p.plus(p.one(lambda x, low: x > low, low="x"))),
    "instants": p.plus(p.any(B, n=lambda n, start: n + start, mean=lambda mean, x: (mean + x) / 2)).with_registers(
        n=0, mean=0.0
    ),
    "limits": p.seq(p.any(n=lambda n: n + 1), p.star(p.none(lambda x, n: x > n, n=lambda n, x: n + x))).with_registers(
        n=0
    ),
}
options = st.fixed_dictionaries(
    {
        "within": st.sampled_from([1, 4, 9, None]),
        "overlap": st.booleans(),
        "order_by": st.sampled_from([None, "x", "kind"]),
    }
)


def assert_agrees(query: Stream) -> None:
    note(describe(query))
    expected = reference.frame(query)
    for batch_rows in BATCH_ROWS:
        assert_same_events(query.collect(batch_rows=batch_rows), expected)
    for batch_rows in (1, 3):
        assert_same_events(collect_with_restarts(query, batch_rows), expected)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_functions(name: str) -> None:
    @settings(thorough, max_examples=40)
    @given(events, options, st.booleans())
    def agrees(rows: list[tuple[int, str, int, int | None]], asked: dict[str, Any], is_keyed: bool) -> None:
        def query(stream: Stream) -> Stream:
            return stream.detect(COMPILED[name], **asked)

        stream = stream_of(rows)
        assert_agrees(stream.group_apply("u", query) if is_keyed else query(stream))

    agrees()


def spell(text: str, kind: str) -> str:
    return text + kind


def longer(text: str, x: int) -> bool:
    return len(text) < 2 + x


elements = st.builds(
    lambda make, conditions, updates: make(*conditions, **updates),
    st.sampled_from([p.one, p.one, p.any, p.none]),
    st.lists(st.sampled_from([A, B, A | B, longer]), min_size=1, max_size=2),
    st.sampled_from([{"text": spell}, {"text": spell, "last": "x"}, {"last": "x"}, {}]),
)
patterns = st.one_of(
    elements,
    st.builds(p.seq, elements, elements),
    st.builds(lambda a, b, c: p.seq(a, p.star(b), c), elements, elements, elements),
    st.builds(lambda a, b, c: p.seq(a, p.opt(p.plus(b), c)), elements, elements, elements),
    st.builds(lambda a, b, c: p.seq(p.alt(a, p.seq(b, c)), p.star(p.star(a))), elements, elements, elements),
)


@settings(thorough, max_examples=60)
@given(events, patterns, options)
@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
def test_random_patterns_with_functions_as_plain_python(
    rows: list[tuple[int, str, int, int | None]], pattern: Pattern, asked: dict[str, Any]
) -> None:
    whole = p.seq(p.any(last="x"), pattern).with_registers(text="")
    assert_agrees(stream_of(rows).group_apply("u", lambda g: g.detect(whole, **asked)))
