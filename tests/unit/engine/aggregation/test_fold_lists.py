from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import squill as sq
from squill.engine.aggregation import fold_lists
from squill.errors import PlanError
from tests.unit.engine.aggregation.snapshots import Row, agrees, histories, order, value_at_end
from tests.unit.engine.aggregation.test_fold_ranks import in_order

quick = settings(max_examples=60, deadline=None, derandomize=True)


@quick
@given(history=histories())
def test_lists_keep_nulls_and_order(history: Any) -> None:
    agrees(sq.collect_list("n"), lambda alive: [row["n"] for row in in_order(alive)], history)
    agrees(
        sq.collect_list("s", order_by="x", where=sq.col("n") > 0),
        lambda alive: [r["s"] for r in in_order(alive, "x") if r["n"] is not None and r["n"] > 0],
        history,
    )


def top(alive: list[Row], by: str, k: int, *, descending: bool) -> list[dict[str, Any]]:
    there = [(order(row[by]), row) for row in alive if row[by] is not None]
    ranked = []
    for key, row in there:
        before = sum(other > key if descending else other < key for other, _ in there)
        if before < k:
            payload = {name: row[name] for name in ("k", "n", "x", "s")}
            ranked.append((before + 1, [order(value) for value in payload.values()], payload))
    return [{"rank": rank, **row} for rank, _, row in sorted(ranked, key=lambda item: item[:2])]


@pytest.mark.parametrize("by", ["n", "x", "s"])
@pytest.mark.parametrize("descending", [True, False])
@quick
@given(history=histories())
def test_top_k(by: str, descending: bool, history: Any) -> None:
    agrees(sq.top_k(by, 2, descending), lambda alive: top(alive, by, 2, descending=descending), history)


TYPES: list[tuple[Any, list[Any]]] = [
    (pl.Enum(["b", "a"]), ["b", "a"]),
    (pl.Categorical, ["b", "a"]),
    (pl.Int128, [2**100, -1]),
    (pl.Struct({"f": pl.Int8}), [{"f": 1}, {"f": None}]),
    (pl.List(pl.String), [["a"], []]),
    (pl.Null, [None, None]),
]


@pytest.mark.parametrize(("dtype", "values"), TYPES, ids=[str(dtype) for dtype, _ in TYPES])
def test_lists_of_every_type(dtype: Any, values: list[Any]) -> None:
    collected = value_at_end(sq.collect_list("x"), values, dtype)
    assert collected.dtype == pl.Series([], dtype=dtype).dtype
    assert collected.to_list() == values


def test_long_answers_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_lists, "PIECE", 64)
    frame = pl.DataFrame({"t": range(100), "x": range(100)})
    lists = sq.from_frame(frame, start="t").with_duration(40).aggregate(v=sq.collect_list("x")).collect()["v"]
    expected = [list(range(max(0, t - 39), min(t, 99) + 1)) for t in range(139)]
    assert lists.to_list() == expected


def test_rows_that_left_are_forgotten() -> None:
    """More rows than the store puts up with dead ones: it is compacted, and the answers stay right."""
    frame = pl.DataFrame({"t": range(150_000)}).with_columns(x=pl.col("t"))
    lasts = sq.from_frame(frame, start="t").with_duration(2).aggregate(v=sq.first("x")).collect(batch_rows=10_000)
    assert lasts["v"].to_list() == [max(t - 1, 0) for t in range(150_001)]


def test_a_payload_column_called_rank_is_refused() -> None:
    with pytest.raises(PlanError, match="have a column 'rank'"):
        sq.from_frame({"t": [1], "rank": [1]}, start="t").aggregate(v=sq.top_k("rank", 1))


def test_lists_of_lists_whose_text_is_gone() -> None:
    """Polars gives the nulls that are left as an empty view with an offset, which pyarrow refuses."""
    nothing: list[list[str | None] | None] = [[None], [], None]
    frame = pl.DataFrame({"t": [1, 2, 3, 4], "x": [["a", None], *nothing]}, schema_overrides={"x": pl.List(pl.String)})
    for rows in (1, 4):
        lists = sq.from_frame(frame, start="t").aggregate(x=sq.collect_list("x"), y=sq.top_k("x", 1))
        assert lists.collect(batch_rows=rows)["x"].to_list() == [[["a", None]], [[None]], [[]], [None]]
