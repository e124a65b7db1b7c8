"""What a fold is, and the table of all of them.

A fold turns the input columns of one or more aggregate calls into numbers that can be stored with a row,
and the deltas of a schedule into one value per finished cell. The same fold serves every schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.aggregation.schedule import Column, Deltas
from squill.engine.batch import Batch
from squill.engine.operator import OperatorState
from squill.errors import InternalError
from squill.plan.aggregates import BoundAggregate
from squill.plan.expression_text import serialise
from squill.plan.expressions import Expression
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import TimeType

__all__ = ["Fold", "FoldContext", "fold_for", "register_fold"]

Array = npt.NDArray[Any]


class FoldContext:
    """What a fold may know of the stream it works on."""

    def __init__(self, payload: Schema, properties: Properties, time: TimeType | None = None) -> None:
        self.payload = payload
        self.properties = properties
        self.time = time
        self.shared: dict[object, Any] = {}
        """State that several folds of one aggregate share, by what it is the state of."""


class Fold:
    """One aggregate over every slot.

    ``inputs``   the expressions it reads, evaluated once per batch for all folds together.
    ``columns``  the types of the numbers it wants stored with each row.
    """

    def __init__(self, call: BoundAggregate, context: FoldContext) -> None:
        self.call = call
        self.context = context
        self.inputs: tuple[Expression, ...] = masked_inputs(call)
        self.columns: tuple[np.dtype[Any], ...] = ()

    def at(self, t: Any) -> str:
        """Return when something happened as the end of a sentence; of rows without times there is nothing to say."""
        return "" if self.context.time is None else f" at time {self.context.time.show(int(t))}"

    def prepare(self, inputs: Sequence[pl.Series], batch: Batch, slots: Array) -> list[Column]:
        """Return the numbers to store for each row of the batch."""
        raise NotImplementedError

    def ensure_slots(self, capacity: int) -> None:
        """Make room for slots below `capacity`."""
        raise NotImplementedError

    def run(self, deltas: Deltas, columns: Sequence[Column]) -> pl.Series:
        """Apply the deltas; return the value of each finished cell, named by the call's placeholder."""
        raise NotImplementedError

    def settle(self) -> None:
        """Give back what the rows that have left used; called once after each push."""

    def keep_slots(self, kept: Array) -> Array | None:
        """Forget all but these slots, of which the i-th is slot i from now on.

        Returns the new numbers of what is stored with rows, where that are codes; None where it stays as it is.
        """
        raise NotImplementedError

    def save(self) -> OperatorState:
        raise NotImplementedError

    def load(self, state: OperatorState) -> None:
        raise NotImplementedError


def masked_inputs(call: BoundAggregate) -> tuple[Expression, ...]:
    """Return the inputs with `where=` worked in: rows that it leaves out have null inputs.

    For every aggregate that skips nulls this *is* the filter; `count` becomes a count of non-null marks.
    """
    if call.where is None:
        return call.inputs
    masked = []
    for item in call.inputs or (call.where.renamed("mark"),):
        expr = pl.when(call.where.expr).then(item.expr)
        roots = tuple(dict.fromkeys((*call.where.roots, *item.roots)))
        masked.append(Expression(serialise(expr), item.name, item.dtype, roots))
    return tuple(masked)


F = TypeVar("F", bound=Callable[[BoundAggregate, FoldContext], Fold])
_FOLDS: dict[str, Callable[[BoundAggregate, FoldContext], Fold]] = {}


def register_fold(*kinds: str) -> Callable[[F], F]:
    """Name the fold (or the function that chooses one) for kinds of aggregates."""

    def enter(factory: F) -> F:
        for kind in kinds:
            _FOLDS[kind] = factory
        return factory

    return enter


def fold_for(call: BoundAggregate, context: FoldContext) -> Fold:
    factory = _FOLDS.get(call.kind)
    if factory is None:
        raise InternalError(f"no fold is registered for the aggregate {call.kind!r}")
    return factory(call, context)
