"""What the operators on pairs of events share: which rows are true of a condition, and the columns of a pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.columns import all_valid, values_and_valid_of
from squill.engine.expressions import Evaluator
from squill.engine.times import refuse_beginningless, time_overflow
from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.plan.nodes.patterns import PairNode, right_name
from squill.time import INFINITY

__all__ = ["Conditions", "check_points", "pair_rows"]

Flags = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]


class Conditions:
    """Conditions over a batch, as one uint8 per row; no condition is true of every row."""

    def __init__(self, conditions: Mapping[str, Expression | None], node: Node) -> None:
        self._names = list(conditions)
        given = [item.renamed(name) for name, item in conditions.items() if item is not None]
        self._evaluator = Evaluator(given, node.inputs[0].time, node.name) if given else None

    def __call__(self, batch: Batch) -> list[Flags]:
        values = self._evaluator(batch) if self._evaluator is not None else {}
        return [_flags(values[name]) if name in values else all_valid(len(batch)) for name in self._names]


def _flags(series: pl.Series) -> Flags:
    is_true, valid = values_and_valid_of(series)
    flags = is_true if series.null_count() == 0 else is_true & valid
    flags.flags.writeable = False
    return flags


def check_points(batch: Batch, node: Node) -> None:
    """Raise when a row's start is no time that a point can be at."""
    refuse_beginningless(batch.sync, node)
    if int(batch.sync[-1]) + 1 >= INFINITY:
        raise time_overflow(node, int(batch.sync[-1]))


def pair_rows(node: PairNode, left: Mapping[str, pl.Series], right: Batch) -> Batch:
    """Return points at the right rows, with the left columns beside theirs."""
    columns = {name: right.columns[name] for name in node.keys}
    columns |= {name: left[name] for name in node.others}
    columns |= {right_name(name): right.columns[name].alias(right_name(name)) for name in node.others}
    return Batch(right.sync, 1, columns)
