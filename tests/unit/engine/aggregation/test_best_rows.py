"""Rows that can never be among the first k are not kept, and the answer is the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.aggregation import fold_lists
from squill.engine.aggregation.fold_lists import best_rows
from squill.engine.batch import Batch, endless, repeated
from squill.engine.operators.aggregate import AggregateOperator
from squill.testing import reference

VALUES: dict[str, list[Any]] = {
    "integers": [n * 7919 % 23 for n in range(200)],
    "with nulls": [None if n % 5 == 0 else n * 7919 % 23 for n in range(200)],
    "floats": [(n * 7919 % 23) / 4 for n in range(200)],
    "zeros of both signs": [0.0 if n % 2 else -0.0 for n in range(200)],
    "not a number": [math.nan if n % 50 == 0 else n % 23 / 2 for n in range(200)],
    "texts": [f"{n * 7919 % 23}" for n in range(200)],
    "all null": [None] * 200,
}


def in_order(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(map(repr, row)) for row in frame.rows()]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("k", [1, 3, 30])
def test_the_first_rows_are_those_of_all(kind: str, k: int, *, descending: bool) -> None:
    dtype = pl.Int64 if kind == "all null" else None
    frame = pl.DataFrame(
        {"x": pl.Series(VALUES[kind], dtype=dtype), "y": range(200), "t": [n // 120 for n in range(200)]}
    )
    timeless = sq.from_frame(frame).aggregate(best=sq.top_k("x", k, descending=descending))
    endless = sq.from_frame(frame, start="t", lifetime="open").aggregate(best=sq.top_k("x", k, descending=descending))
    for query in (timeless, endless):
        expected = reference.frame(query)
        for batch_rows in (7, 50, 1_000):
            found = query.collect(batch_rows=batch_rows)
            assert sorted(in_order(found)) == sorted(in_order(expected.select(found.columns)))


def test_keys_and_rows_that_end_keep_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(values: pl.Series, k: int, *, descending: bool) -> Any:
        calls.append(len(values))
        return best_rows(values, k, descending=descending)

    monkeypatch.setattr(fold_lists, "best_rows", counted)
    frame = pl.DataFrame({"x": range(100), "g": [n % 2 for n in range(100)], "t": [0] * 100})
    best = {"best": sq.top_k("x", 2)}
    sq.from_frame(frame, start="t").aggregate(**best).collect()
    sq.from_frame(frame).group_aggregate("g", **best).collect()
    assert not calls
    sq.from_frame(frame).aggregate(**best).collect()
    assert calls == [100]


def test_what_is_kept_does_not_grow_with_what_has_passed() -> None:
    node = sq.from_frame({"x": [1.0], "t": [0]}, start="t", lifetime="open").aggregate(best=sq.top_k("x", 10)).plan
    operator = AggregateOperator(node)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    for step in range(20):
        operator.push(Batch(repeated(step, 5_000), endless(5_000), {"x": pl.Series("x", rng.random(5_000))}))
        operator.advance(step)
    (fold,) = operator._folds
    assert isinstance(fold, fold_lists.TopFold)
    assert fold._codes.interned.table.live <= 20 * 10
