"""AS OF joins: each left event with the latest right event of its key."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.compile import compile_plan
from squill.engine.operator import Operator
from squill.engine.operators.asof_join import AsofJoinOperator
from squill.plan.events import Punctuation
from squill.stream import Stream
from tests.unit.engine.operators.rows import edges, intervals, points, rows


def test_latest_of_the_key_is_taken() -> None:
    trades = points(1, 5, 7, k=["a", "a", "b"])
    quotes = points(0, 4, 6, k=["a", "a", "a"], p=[10, 11, 12])
    assert rows(trades.asof_join(quotes, on="k")) == [(1, 2, "a", 10), (5, 6, "a", 11), (7, 8, "b", None)]


def test_start_at_the_same_instant_counts_whichever_side_comes_first() -> None:
    assert rows(points(3, x=[1]).asof_join(points(3, p=[2]))) == [(3, 4, 1, 2)]


def test_start_one_tick_later_does_not_count() -> None:
    assert rows(points(3, x=[1]).asof_join(points(4, p=[2]))) == [(3, 4, 1, None)]


def test_inner_leaves_events_without_a_partner_out() -> None:
    assert rows(points(1, 5, x=[1, 2]).asof_join(points(2, p=[9]), how="inner")) == [(5, 6, 2, 9)]


def test_tolerance_includes_its_bound() -> None:
    left = points(7, 8, x=[1, 2])
    assert rows(left.asof_join(points(2, p=[9]), tolerance=5)) == [(7, 8, 1, 9), (8, 9, 2, None)]


def test_tolerance_reaches_over_all_of_time() -> None:
    first, last = -(2**63) + 2, 2**63 - 3
    assert rows(points(last, x=[1]).asof_join(points(first, p=[9]), tolerance=2**62)) == [(last, last + 1, 1, None)]
    assert rows(points(first + 5, x=[1]).asof_join(points(first, p=[9]), tolerance=2**62))[0][3] == 9


def test_row_that_is_too_old_does_not_hide_behind_its_key() -> None:
    quotes = points(0, 100, k=["a", "b"], p=[1, 2])
    assert rows(points(50, k=["a"]).asof_join(quotes, on="k", tolerance=10)) == [(50, 51, "a", None)]


def test_last_by_payload_is_taken_of_rows_that_began_together() -> None:
    quotes = points(1, 1, 1, p=[2, 3, None], q=["c", "a", "b"])
    assert rows(points(1, x=[0]).asof_join(quotes)) == [(1, 2, 0, 3, "a")]


def test_order_by_comes_before_the_payload() -> None:
    quotes = points(1, 1, 1, p=[2, 3, 1], q=["b", "a", "b"])
    assert rows(points(1, x=[0]).asof_join(quotes, order_by="q")) == [(1, 2, 0, 2, "b")]
    assert rows(points(1, x=[0]).asof_join(quotes, order_by=-sq.col("p"))) == [(1, 2, 0, 1, "b")]


def test_order_by_may_use_ends_that_are_known() -> None:
    quotes = intervals((1, 9), (1, 5), p=[1, 2])
    assert rows(points(1, x=[0]).asof_join(quotes, order_by=sq.end())) == [(1, 2, 0, 1)]


def test_null_key_matches_nothing() -> None:
    left, right = points(5, 5, k=[None, 1]), points(1, 1, k=[None, 1], p=[7, 8])
    assert rows(left.asof_join(right, on="k")) == [(5, 6, None, None), (5, 6, 1, 8)]


def test_null_key_of_a_group_is_a_key() -> None:
    stream = points(1, 5, k=[None, None], x=[1, 2])
    joined = stream.group_apply("k", lambda g: g.asof_join(g.shift(1).select(y="x")))
    assert rows(joined) == [(1, 2, None, 1, None), (5, 6, None, 2, 1)]


def test_nan_and_zeros_are_keys_like_others() -> None:
    left = points(5, 5, k=[float("nan"), -0.0])
    right = points(1, 1, k=[float("nan"), 0.0], p=[7, 8])
    assert [row[3] for row in rows(left.asof_join(right, on="k"))] == [8, 7]


def test_right_ends_are_ignored() -> None:
    assert rows(points(9, v=[1]).asof_join(edges((1, 3), x=["p"]))) == [(9, 10, 1, "p")]
    assert rows(points(9, v=[1]).asof_join(intervals((1, 3), x=["p"]))) == [(9, 10, 1, "p")]


def test_end_edge_carries_what_its_start_edge_carried() -> None:
    left = edges((1, 6), (4, 6), (4, None), x=["a", "a", "a"])
    joined = left.asof_join(points(0, 2, 5, p=[10, 20, 30]))
    assert rows(joined) == [(1, 6, "a", 10), (4, None, "a", 20), (4, 6, "a", 20)]
    told = [event.payload["p"] for event in joined.collect_events() if not isinstance(event, Punctuation)]
    assert told == [10, 20, 20, 10, 20]


def test_edges_without_a_partner_leave_together() -> None:
    left = edges((1, 6), (4, 7), x=["a", "b"])
    assert rows(left.asof_join(points(2, p=[9]), how="inner")) == [(4, 7, "b", 9)]


def test_consumer_that_sets_lifetimes_gets_no_ends_and_none_are_held() -> None:
    node = edges((1, 6), x=["a"]).asof_join(points(0, p=[9])).with_duration(3).plan
    pipeline = compile_plan(node, Sink(node))
    (operator,) = (item for item in pipeline.operators if isinstance(item, AsofJoinOperator))
    assert [operator.demands_on(port) for port in (0, 1)] == ["starts", "starts"]
    assert rows(edges((1, 6), x=["a"]).asof_join(points(0, p=[9])).with_duration(3)) == [(1, 4, "a", 9)]


def test_columns_of_both_sides_keep_their_order() -> None:
    joined = points(1, k=[1], x=[2]).asof_join(points(0, k=[1], x=[3], y=[4]), on="k")
    assert list(joined.schema) == ["k", "x", "x_right", "y"]
    assert rows(joined) == [(1, 2, 1, 2, 3, 4)]


def test_nested_columns_pass() -> None:
    quotes = points(0, 0, p=[[1, 2], [3]], q=[{"a": 1}, {"a": 2}])
    assert rows(points(1, x=[0]).asof_join(quotes)) == [(1, 2, 0, [3], {"a": 2})]


def test_left_without_columns() -> None:
    assert rows(points(4, 5).asof_join(points(4, p=[1]))) == [(4, 5, 1), (5, 6, 1)]


# -- state --------------------------------------------------------------------------------------------------


class Sink(Operator):
    def push(self, batch: Batch, port: int = 0) -> None:
        pass


def pipeline_of(query: Stream) -> AsofJoinOperator:
    node = query.plan
    pipeline = compile_plan(node, Sink(node))
    (operator,) = (item for item in pipeline.operators if isinstance(item, AsofJoinOperator))
    return operator


def empty(**columns: type[pl.DataType]) -> Stream:
    return sq.from_frame(pl.DataFrame(schema={"t": pl.Int64, **columns}), start="t")


def push_quotes(operator: AsofJoinOperator, times: np.ndarray, keys: np.ndarray) -> None:
    columns = {"k": pl.Series("k", keys), "p": pl.Series("p", times)}
    for low in range(0, len(times), 10_000):
        part = slice(low, low + 10_000)
        cut = {name: column[part] for name, column in columns.items()}
        operator.push(Batch(times[part], 1, cut), 1)
        operator.advance(int(times[part][-1]), 0)
        operator.advance(int(times[part][-1]), 1)


def test_replaced_rows_leave() -> None:
    operator = pipeline_of(empty(k=pl.Int64).asof_join(empty(k=pl.Int64, p=pl.Int64), on="k"))
    times = np.arange(200_000)
    push_quotes(operator, times, times % 10)
    assert operator.state_rows <= 11
    assert len(operator._store) < 50_000


def test_keys_that_only_the_left_has_are_not_kept() -> None:
    operator = pipeline_of(empty(k=pl.Int64).asof_join(empty(k=pl.Int64, p=pl.Int64), on="k"))
    times = np.arange(1000)
    operator.push(Batch(times, 1, {"k": pl.Series("k", times)}), 0)
    operator.advance(1000, 0)
    operator.advance(1000, 1)
    assert operator.state_rows == 0


@pytest.mark.parametrize(("tolerance", "most"), [(100, 20_000), (None, 200_001)])
def test_keys_that_are_too_old_leave(tolerance: int | None, most: int) -> None:
    query = empty(k=pl.Int64).asof_join(empty(k=pl.Int64, p=pl.Int64), on="k", tolerance=tolerance)
    operator = pipeline_of(query)
    times = np.arange(200_000)
    push_quotes(operator, times, times)
    assert operator.state_rows <= most
    assert tolerance is not None or operator.state_rows > 199_000


def test_matches_of_open_events_outlive_compaction() -> None:
    left, right = edges((0, 500_000), x=["a"]), empty(k=pl.Int64, p=pl.Int64)
    node = left.asof_join(right).plan
    kept: list[Batch] = []

    class Keep(Operator):
        def push(self, batch: Batch, port: int = 0) -> None:
            kept.append(batch)

    pipeline = compile_plan(node, Keep(node))
    (operator,) = (item for item in pipeline.operators if isinstance(item, AsofJoinOperator))
    start = {"x": pl.Series("x", ["a"])}
    operator.push(Batch(np.array([5]), np.array([2**63 - 1]), start), 0)
    times = np.arange(200_000)
    push_quotes(operator, times, times)
    assert len(operator._store) < 50_000
    operator.push(Batch(np.array([300_000]), np.array([5]), start), 0)
    for port in (0, 1):
        operator.advance(2**63 - 1, port)
    assert [batch.columns["p"].to_list() for batch in kept] == [[5], [5]]
    assert operator.state_rows == 1
