from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import squill as sq
from squill.engine.operators.aggregate import AggregateOperator
from squill.plan.node import walk
from squill.plan.nodes import Aggregate
from tests.unit.engine.aggregation.snapshots import Row, agrees, histories, order, value_at_end

quick = settings(max_examples=60, deadline=None, derandomize=True)


def present(alive: list[Row], name: str) -> list[Any]:
    return sorted((row[name] for row in alive if row[name] is not None), key=order)


def in_order(alive: list[Row], *leading: str) -> list[Row]:
    columns = (*leading, "k", "n", "x", "s")
    return sorted(alive, key=lambda row: (row["start"], [order(row[name]) for name in columns]))


def discrete(p: float, values: list[Any]) -> Any:
    return values[max(math.ceil(p * len(values)) - 1, 0)] if values else None


def continuous(p: float, values: list[float]) -> float | None:
    if not values:
        return None
    rank = p * (len(values) - 1)
    low, high = values[math.floor(rank)], values[math.ceil(rank)]
    return float(low) if rank == math.floor(rank) else low + (high - low) * (rank % 1)


@pytest.mark.parametrize("name", ["n", "x", "s"])
@quick
@given(history=histories())
def test_min_and_max_follow_the_rows(name: str, history: Any) -> None:
    agrees(sq.min(name), lambda alive: next(iter(present(alive, name)), None), history)
    agrees(sq.max(name), lambda alive: next(reversed(present(alive, name)), None), history)


@quick
@given(history=histories())
def test_percentiles(history: Any) -> None:
    agrees(sq.percentile("n", 0.3), lambda alive: continuous(0.3, present(alive, "n")), history)
    agrees(sq.percentile("x", 0.5, discrete=True), lambda alive: discrete(0.5, present(alive, "x")), history)


@quick
@given(history=histories())
def test_where_filters_one_aggregate_only(history: Any) -> None:
    model = lambda alive: max((row["n"] for row in alive if row["n"] is not None and row["n"] < 2), default=None)  # noqa: E731
    agrees(sq.max("n", where=sq.col("n") < 2), model, history)


@quick
@given(history=histories())
def test_first_and_last_by_start_then_payload(history: Any) -> None:
    agrees(sq.first("s"), lambda alive: next((r["s"] for r in in_order(alive) if r["s"] is not None), None), history)
    agrees(
        sq.last("n", order_by="s"),
        lambda alive: next((r["n"] for r in reversed(in_order(alive, "s")) if r["n"] is not None), None),
        history,
    )


VALUES: list[tuple[Any, list[Any]]] = [
    (pl.Int8, [3, -128, None, 127]),
    (pl.UInt64, [2**64 - 1, 0, None, 2**63]),
    (pl.Float32, [0.5, None, -1.5, 2.25]),
    (pl.Boolean, [True, None, False]),
    (pl.Date, [dt.date(2024, 1, 2), None, dt.date(1960, 1, 1)]),
    (pl.Datetime("ms"), [dt.datetime(2024, 1, 2), dt.datetime(1960, 1, 1)]),
    (pl.Time, [dt.time(3), None, dt.time(1)]),
    (pl.Duration("us"), [dt.timedelta(3), None, dt.timedelta(-1)]),
    (pl.String, ["b", None, "", "é", "ab"]),
    (pl.Binary, [b"b", None, b"\x00", b"b\x00"]),
    (pl.Categorical, ["b", None, "a"]),
    (pl.Decimal(38, 2), [Decimal("1.50"), None, Decimal("-9e20"), Decimal("9e20")]),
    (pl.Int128, [3, -(2**100), 2**100]),
    (pl.List(pl.Int64), [[1, 2], None, [1], [3]]),
]


@pytest.mark.parametrize(("dtype", "values"), VALUES, ids=[str(dtype) for dtype, _ in VALUES])
def test_extremes_of_every_type(dtype: Any, values: list[Any]) -> None:
    there = [value for value in values if value is not None]
    assert plain(value_at_end(sq.min("x"), values, dtype)) == min(there)
    assert plain(value_at_end(sq.max("x"), values, dtype)) == max(there)
    assert plain(value_at_end(sq.min("x"), values, dtype, leave=len(values) - 1)) == values[-1]


def plain(value: Any) -> Any:
    return value.to_list() if isinstance(value, pl.Series) else value


def test_enums_are_ordered_by_category() -> None:
    levels = pl.Enum(["low", "high", "extreme"])
    assert value_at_end(sq.max("x"), ["low", "extreme", "high", None], levels) == "extreme"
    assert value_at_end(sq.min("x"), [None], levels) is None


def test_nan_is_the_largest() -> None:
    assert math.isnan(value_at_end(sq.max("x"), [1.0, math.nan, math.inf], pl.Float64))
    assert value_at_end(sq.min("x"), [math.nan, math.inf], pl.Float64) == math.inf


def test_a_column_without_a_type_gives_null() -> None:
    assert value_at_end(sq.max("x"), [None, None], pl.Null) is None
    assert value_at_end(sq.percentile("x", 0.5), [None, None], pl.Null) is None


def test_percentile_of_decimals_and_of_values_at_both_ends_of_the_range() -> None:
    prices = [Decimal("1.00"), Decimal("2.00"), None]
    assert value_at_end(sq.percentile("x", 0.5), prices, pl.Decimal(10, 2)) == 1.5
    assert value_at_end(sq.percentile("x", 0.5), [-1.7e308, 1.7e308], pl.Float64) == 0.0


def test_calls_over_the_same_values_share_one_multiset() -> None:
    stream = sq.from_frame({"t": [1], "x": [2.0]}, start="t").with_duration(3)
    query = stream.aggregate(a=sq.min("x"), b=sq.max("x"), c=sq.percentile("x", 0.5), d=sq.percentile("x", 0.9))
    node = next(node for node in walk(query.plan) if isinstance(node, Aggregate))
    folds = AggregateOperator(node)._folds
    assert [len(fold.columns) for fold in folds] == [1, 0, 0, 0]
    assert [bool(fold.save()) for fold in folds] == [True, False, False, False]


def test_extremes_of_an_endless_stream_keep_two_codes_per_key() -> None:
    frame = pl.DataFrame({"t": range(500), "x": [f"{i % 97:03}" for i in range(500)]})
    query = sq.from_frame(frame, start="t", lifetime="open").aggregate(a=sq.min("x"), b=sq.max("x"))
    assert query.collect().row(-1)[2:] == ("000", "096")
    node = next(node for node in walk(query.plan) if isinstance(node, Aggregate))
    operator = AggregateOperator(node)

    fold: Any = operator._folds[0]
    assert fold._order._is_running


def test_large_instants_are_put_together_by_key() -> None:
    """Hundreds of changes per instant over a dozen keys, in batches that cut instants in two."""
    frame = pl.DataFrame({"t": [i // 300 * 10 for i in range(3000)]}).with_columns(
        k=pl.int_range(3000) * 7919 % 12, x=pl.int_range(3000) * 104_729 % 1009
    )
    stream = sq.from_frame(frame, start="t").with_duration(25)
    answer = stream.group_aggregate("k", low=sq.min("x"), high=sq.max("x"), all=sq.collect_list("x"))
    for row in answer.collect(batch_rows=170).iter_rows(named=True):
        alive = frame.filter(pl.col("k") == row["k"], pl.col("t").is_between(row["start"] - 24, row["start"]))
        assert [row["low"], row["high"]] == [alive["x"].min(), alive["x"].max()]
        assert row["all"] == alive.sort("t", "x")["x"].to_list()
