"""Columns of what a join by step looks up are computed for the pairs it finds, where that changes no answer."""

from __future__ import annotations

import polars as pl
import pytest

import squill as sq
from squill.plan.build.progress import inputs_of, over_progress
from squill.plan.explain import explain
from squill.plan.node import Node, walk
from squill.plan.nodes import Join, Select
from squill.plan.past_steps import forget_past_steps, join_by_step
from squill.plan.rewrite import rewrite
from squill.plan.rewrite.compute_after_step_join import compute_after_step_join
from squill.stream import Stream

ORDERS = sq.from_frame({"order": [1, 2, 3], "x": [10, 20, 30]}, name="orders")
LINES = sq.from_frame({"of": [1, 1, 3, 9], "price": [5.0, 6.0, 7.0, 8.0], "off": [0.5, 0.0, 0.5, 0.5]}, name="lines")
DECIMALS = sq.from_frame(
    pl.DataFrame({"of": [1, 9], "d": ["1.5", "9" * 30]}).with_columns(pl.col("d").cast(pl.Decimal(38, 2))), name="lines"
)
BY_ORDER = {"orders": sq.progress.hashed("order", 4), "lines": sq.progress.hashed("of", 4)}
REVENUE = sq.col("price") * (1 - sq.col("off"))


def before(query: Stream) -> Node:
    node = rewrite(query.plan)
    return join_by_step(forget_past_steps(over_progress(node, inputs_of(node, BY_ORDER), 1)))


def joined(lines: Stream, **options: object) -> Stream:
    return ORDERS.join(lines, left_on="order", right_on="of", **options)  # type: ignore[arg-type]


def test_what_is_computed_moves_behind_the_join() -> None:
    query = joined(LINES.select("of", revenue=REVENUE))
    plan = compute_after_step_join(before(query))
    select, join, *_, given, _ = [line.split("  ->")[0].strip() for line in explain(plan).splitlines()[1:]]
    assert select.startswith('select(columns=[order, x, of, revenue=[(col("__squill_right_price__")) * (')
    assert join.startswith("join(matching=[order = of]")
    assert given == "select(columns=[of, __squill_right_price__=price, __squill_right_off__=off])"
    assert plan.schema == before(query).schema
    (*_, last) = query.progressive(BY_ORDER)
    assert sorted(last.frame.rows()) == [(1, 10, 1, 2.5), (1, 10, 1, 6.0), (3, 30, 3, 3.5)]


def test_columns_that_are_there_anyway_are_not_gathered_twice() -> None:
    query = joined(LINES.select("of", "off", x="price", revenue=REVENUE))
    (join,) = [node for node in walk(compute_after_step_join(before(query))) if isinstance(node, Join)]
    assert list(join.schema) == ["order", "x", "of", "off", "x_right"]
    (*_, last) = query.progressive(BY_ORDER)
    assert sorted(last.frame["revenue"].to_list()) == [2.5, 3.5, 6.0]


def test_both_inputs_are_computed_behind_the_join() -> None:
    left = ORDERS.select("order", double=2 * sq.col("x"))
    query = left.join(LINES.select("of", double=2 * sq.col("price")), left_on="order", right_on="of")
    plan = compute_after_step_join(before(query))
    (join,) = [node for node in walk(plan) if isinstance(node, Join)]
    assert list(join.schema) == ["order", "__squill_left_x__", "of", "__squill_right_price__"]
    (*_, last) = query.progressive(BY_ORDER)
    assert sorted(last.frame.rows()) == [(1, 20, 1, 10.0), (1, 20, 1, 12.0), (3, 60, 3, 14.0)]


STAYS = {
    "what may fail": lambda: joined(LINES.select("of", text=sq.col("price").cast(pl.Int8))),
    "what the condition looks at": lambda: joined(LINES.select("of", r=REVENUE), where=sq.col("r") > 3),
    "decimals, which overflow": lambda: joined(DECIMALS.select("of", square=sq.col("d") * sq.col("d"))),
    "constants": lambda: joined(LINES.select("of", one=pl.lit(1))),
    "columns under other names": lambda: joined(LINES.select("of", cost="price")),
}


@pytest.mark.parametrize("name", STAYS)
def test_other_columns_stay_where_they_are(name: str) -> None:
    plan = before(STAYS[name]())
    assert compute_after_step_join(plan) is plan


def test_joins_that_keep_rows_compute_before_they_keep_them() -> None:
    node = rewrite(joined(LINES.select("of", revenue=REVENUE)).plan)
    plan = over_progress(node, inputs_of(node, BY_ORDER), 1)
    assert compute_after_step_join(plan) is plan
    (join,) = [item for item in walk(plan) if isinstance(item, Join)]
    assert isinstance(join.right, Select)
    assert list(join.right.schema) == ["of", "revenue"]
