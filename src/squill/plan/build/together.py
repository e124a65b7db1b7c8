"""What inputs promise of their progress: rows of equal values in some columns come at one point.

It makes keys that are no hashed columns as good as these (`plan/past_steps.py`), as a foreign key does: lines have the
point of their order. What is promised is checked by a query of its own, whose rows are the promises that are broken::

    where(points > 1)
      aggregate(keys=[order], points=count())
        distinct
          union
            select(order, step)              of the orders
            select(order=of, step=step)      of the lines
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from squill.errors import InputError, PlanError
from squill.plan.assignment import Assignment, Promising
from squill.plan.build.aggregation import aggregate, distinct, union
from squill.plan.build.payload import select, where
from squill.plan.functions import count
from squill.plan.node import Node
from squill.plan.nodes import FileSource, Source

if TYPE_CHECKING:
    from squill.plan.build.progress import ProgressInput

__all__ = ["broken_promise", "check_promises_agree", "promised_together", "promises_broken"]

POINTS = "points"


def check_promises_agree(named: Mapping[str, Source], chosen: Mapping[str, Assignment]) -> None:
    """Inputs that promise something must promise it of the same values, given their points in the same way."""
    first: tuple[str, str] | None = None
    for name, assignment in chosen.items():
        if not isinstance(assignment, Promising) or not assignment.together:
            continue
        types = ", ".join(str(named[name].columns[column]) for column in assignment.together)
        shown = f"{type(assignment).__name__.lower()}(…) together by {types}"
        if first is None:
            first = name, shown
        elif shown != first[1]:
            raise PlanError(
                f"progressive: {first[0]!r} has {first[1]}, but {name!r} has {shown}",
                "inputs whose rows come together need as many columns of the same types for together=, in the same "
                "order, and points given in the same way.",
            )


def promised_together(inputs: Sequence[ProgressInput]) -> list[ProgressInput]:
    """Return the inputs whose promise is to be checked."""
    return [
        item
        for item in inputs
        if isinstance(item.assignment, Promising) and item.assignment.together and not item.assignment.trust
    ]


def promises_broken(inputs: Sequence[ProgressInput]) -> Node:
    """Return the query after values whose rows come at different points; `inputs` promise that there are none."""
    found = distinct(union([_given_points(item) for item in inputs]))
    keys = [name for name in found.schema if name.startswith("key")]
    return where(aggregate(found, keys, {POINTS: count()}), [pl.col(POINTS) > 1])


def _given_points(item: ProgressInput) -> Node:
    source, assignment = item.source, item.assignment
    assert isinstance(assignment, Promising)
    # When rows live says nothing of when they come.
    rows = replace(source, lifetime=None)
    rows = replace(rows, read=None) if isinstance(rows, FileSource) else rows
    keys = {f"key{place}": pl.col(name) for place, name in enumerate(assignment.together)}
    points = {f"given{place}": pl.col(name) for place, name in enumerate(assignment.columns)}
    return select(rows, (), (), {**keys, **points})


def broken_promise(inputs: Sequence[ProgressInput], row: Sequence[object]) -> InputError:
    """Return the error that a row of the query is."""
    *values, points = row
    assignment = inputs[0].assignment
    assert isinstance(assignment, Promising)
    names = " and ".join(repr(item.name) for item in inputs)
    key = ", ".join(f"{name} = {value!r}" for name, value in zip(assignment.together, values, strict=True))
    return InputError(
        f"input {names}: rows of {key} were promised to come together, "
        f"but have {points} different values of {', '.join(assignment.columns)}",
        "leave together= out, or correct the data.",
    )
