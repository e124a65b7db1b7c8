"""Operators that keep something know how to forget the keys of other shards."""

from __future__ import annotations

from squill.engine.compile import load_operators
from squill.engine.operator import Operator
from squill.engine.operators.each_step import EachStepOperator
from squill.engine.operators.step_join import StepJoin

NEVER_DIVIDED: set[type[Operator]] = {EachStepOperator, StepJoin}
"""What goes by steps is in no live query."""


def subclasses(kind: type[Operator]) -> set[type[Operator]]:
    return {kind}.union(*(subclasses(item) for item in kind.__subclasses__()))


def test_operators_that_save_something_forget_what_is_not_theirs() -> None:
    load_operators()
    savers = {kind for kind in subclasses(Operator) if kind.save is not Operator.save} - NEVER_DIVIDED
    ours = {kind for kind in savers if kind.__module__.startswith("squill.engine.operators")}
    assert len(ours) > 20
    assert {kind.__name__ for kind in ours if kind.keep is Operator.keep} == set()
