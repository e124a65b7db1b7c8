"""Operators whose rows take effect later: what is due leaves in order, the rest waits, and some is taken back."""

from __future__ import annotations

import numpy as np
import polars as pl

import squill as sq
from squill.engine.batch import Batch
from squill.engine.delay import CancellingDelayOperator, DelayOperator
from squill.engine.operator import Operator
from squill.time import INFINITY

NODE = sq.from_frame(pl.DataFrame(schema={"t": pl.Int64, "x": pl.Int64}), start="t").plan


class Later(DelayOperator):
    """Each row takes effect x ticks later."""

    def map(self, batch: Batch) -> Batch:
        sync = batch.sync + batch.columns["x"].to_numpy()
        return Batch(sync, sync + 1, batch.columns)


class LaterUnlessEven(CancellingDelayOperator):
    def map(self, batch: Batch) -> Batch:
        delayed = Later.map(self, batch)  # type: ignore[arg-type]
        self._cancelled.add(delayed.filter(batch.columns["x"].to_numpy() % 2 == 0))
        return delayed


class Seen(Operator):
    def __init__(self) -> None:
        super().__init__(NODE)
        self.rows: list[tuple[int, int]] = []
        self.clocks: list[int] = []

    def push(self, batch: Batch, port: int = 0) -> None:
        self.rows += zip(batch.sync.tolist(), batch.columns["x"].to_list(), strict=True)

    def advance(self, t: int, port: int = 0) -> None:
        self.clocks.append(t)


def wired(operator: Operator) -> Seen:
    seen = Seen()
    operator.consumers.append((seen, 0))
    return seen


def rows(*given: tuple[int, int]) -> Batch:
    return Batch(np.array([t for t, _ in given]), 1, {"x": pl.Series("x", [x for _, x in given])})


def test_rows_leave_when_they_are_due_and_in_order() -> None:
    operator = Later(NODE)
    seen = wired(operator)
    operator.push(rows((1, 9), (2, 1), (5, 0)))
    assert seen.rows == [(3, 1), (5, 0)]
    operator.push(rows((6, 2), (8, 0)))
    assert seen.rows[2:] == [(8, 2), (8, 0)]
    operator.advance(9)
    assert (len(seen.rows), operator.state_rows) == (4, 1)
    operator.advance(INFINITY)
    assert seen.rows[4:] == [(10, 9)]
    assert seen.clocks == [9, INFINITY]
    assert operator.state_rows == 0


def test_rows_that_are_due_at_once_do_not_wait() -> None:
    operator = Later(NODE)
    seen = wired(operator)
    operator.push(rows((1, 0), (1, 0), (4, 0)))
    assert len(seen.rows) == 3
    assert operator.state_rows == 0


def test_rows_that_are_taken_back_never_leave() -> None:
    operator = LaterUnlessEven(NODE)
    seen = wired(operator)
    operator.push(rows((1, 4), (1, 3), (2, 3), (3, 2)))
    assert operator.state_rows == 4 + 2
    operator.advance(INFINITY)
    assert seen.rows == [(4, 3), (5, 3)]
    assert operator.state_rows == 0


def test_a_loaded_operator_goes_on() -> None:
    for kind in (Later, LaterUnlessEven):
        first, second = kind(NODE), kind(NODE)
        wired(first)
        first.push(rows((1, 4), (1, 3)))
        first.advance(2)
        second.load(first.save())
        first.advance(INFINITY)
        seen = wired(second)
        assert second.clock == 2
        second.advance(INFINITY)
        assert seen.rows == ([(4, 3), (5, 4)] if kind is Later else [(4, 3)])
