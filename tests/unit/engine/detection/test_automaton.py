from __future__ import annotations

import pytest

import squill as sq
from squill.engine.detection.automaton import Automaton
from squill.plan.nodes import Detect
from squill.plan.pattern import Pattern

p = sq.pattern
A, B, C = (p.one(sq.col("x") == x) for x in (1, 2, 3))


def automaton(pattern: Pattern) -> tuple[list[tuple[int, ...]], list[int]]:
    plan = sq.from_frame({"t": [1], "x": [1]}, start="t").detect(pattern).plan
    assert isinstance(plan, Detect)
    made = Automaton(plan.tree, len(plan.elements))
    return made.follow, sorted(made.accepting)


@pytest.mark.parametrize(
    ("pattern", "follow", "accepting"),
    [
        (A, [(1,), ()], [1]),
        (p.seq(A, B), [(1,), (2,), ()], [2]),
        (p.seq(A, p.star(B), C), [(1,), (2, 3), (2, 3), ()], [3]),
        (p.seq(A, p.opt(B)), [(1,), (2,), ()], [1, 2]),
        (p.alt(A, p.seq(B, C)), [(1, 2), (), (3,), ()], [1, 3]),
        (p.plus(p.opt(A), p.opt(B)), [(1, 2), (1, 2), (1, 2)], [1, 2]),
        (p.star(p.star(A)), [(1,), (1,)], [1]),
        (p.seq(p.star(A), p.star(B)), [(1, 2), (1, 2), (2,)], [1, 2]),
    ],
)
def test_positions_follow_each_other(pattern: Pattern, follow: list[tuple[int, ...]], accepting: list[int]) -> None:
    assert automaton(pattern) == (follow, accepting)
