"""The reference's patterns, against answers worked out by hand."""

from __future__ import annotations

import squill as sq
from squill.plan.pattern import Pattern
from squill.stream import Stream
from squill.testing import Row, reference

p = sq.pattern
A, B = sq.col("k") == "a", sq.col("k") == "b"


def spelled(text: str) -> Stream:
    return sq.from_frame({"t": list(range(len(text))), "k": list(text)}, start="t")


def lifetimes(text: str, pattern: Pattern, **options: object) -> list[tuple[int, int]]:
    found = reference.run(spelled(text).detect(pattern, **options))  # type: ignore[arg-type]
    return [(row.start, row.end) for row in found]


def test_every_start_and_every_prefix() -> None:
    assert lifetimes("aab", p.seq(p.plus(A), p.star(B)), within=9) == [(0, 9), (1, 9), (1, 10), (2, 9), (2, 10)]


def test_without_overlap_an_event_that_goes_on_begins_nothing() -> None:
    assert lifetimes("aab", p.seq(p.plus(A), p.star(B)), within=9, overlap=False) == [(0, 9), (1, 9), (2, 9)]


def test_functions_see_registers_columns_and_start() -> None:
    spell = p.plus(p.any(text=lambda text, k, start: f"{text}{k}{start}")).with_registers(text="")
    assert reference.run(spelled("ab").detect(spell, within=1)) == [
        Row(0, 1, {"text": "a0"}),
        Row(1, 2, {"text": "b1"}),
    ]


def test_pairs() -> None:
    assert reference.run(spelled("abb").followed_by(A, B, 2)) == [Row(1, 2, {"k": "a", "k_right": "b"})]
    assert len(reference.run(spelled("abb").consecutive_pairs())) == 2
    assert reference.run(spelled("aab").sessionize(A, B)) == [Row(2, 3, {"k": "a", "k_right": "b"})] * 2
