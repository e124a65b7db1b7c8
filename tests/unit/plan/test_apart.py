"""Which queries over time may run step by step of a hash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import squill as sq
from squill.errors import InputError, UnsupportedOperatorError
from squill.stream import Stream

Query = Callable[[Stream, Stream], Stream]


def inputs() -> tuple[Stream, Stream]:
    left = sq.from_frame({"t": [1, 2], "u": [1, 2], "v": [3, 4], "x": [5, 6]}, start="t", name="left")
    right = sq.from_frame({"t": [1, 2], "u": [1, 2], "w": [1, 4]}, start="t", name="right")
    return left, right


APART: dict[str, Query] = {
    "grouped": lambda a, _: a.group_apply("u", lambda g: g.count()),
    "finer_group": lambda a, _: a.group_apply(["v", "u"], lambda g: g.count()),
    "renamed": lambda a, _: a.rename({"u": "user"}).group_apply("user", lambda g: g.count()),
    "row_by_row": lambda a, _: a.where(sq.col("x") > 5).select("x"),
    "windows": lambda a, _: a.group_apply("u", lambda g: g.session_window(5).count()),
    "distinct": lambda a, _: a.distinct(),
    "join": lambda a, b: a.join(b, on="u"),
    "left_join_then_group": lambda a, b: a.join(b, on="u", how="left").group_apply("u", lambda g: g.count()),
    "full_join_then_group": lambda a, b: a.join(b, on="u", how="full").group_apply("u", lambda g: g.count()),
    "join_by_other_names": lambda a, b: a.join(b.rename({"u": "z"}), left_on="u", right_on="z"),
    "asof": lambda a, b: a.asof_join(b, on="u"),
    "exists": lambda a, b: a.where_exists(b, on="u"),
    "union": lambda a, b: a.select("u").union(b.select("u")).group_apply("u", lambda g: g.count()),
}  # fmt: skip

MIXED: dict[str, Query] = {
    "ungrouped": lambda a, _: a.count(),
    "other_group": lambda a, _: a.group_apply("v", lambda g: g.count()),
    "computed_key": lambda a, _: a.with_columns(u=sq.col("u") % 2).group_apply("u", lambda g: g.count()),
    "distinct_without": lambda a, _: a.select("x").distinct(),
    "join_by_others": lambda a, b: a.join(b, left_on="u", right_on="w"),
    "cross_join": lambda a, b: a.join(b, how="cross"),
    "after_a_right_join": lambda a, b: a.join(b.rename({"u": "z"}), left_on="u", right_on="z", how="right").group_apply(
        "u", lambda g: g.count()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_rows_of_different_steps_never_meet(name: str) -> None:
    query = APART[name](*inputs())
    *_, last = query.progressive(sq.progress.hashed("u", 3))
    assert last.frame.rows() == query.collect(sort=True).rows()


@pytest.mark.parametrize("name", MIXED)
def test_rows_of_different_steps_meet(name: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="looks at rows of different steps"):
        MIXED[name](*inputs()).progressive(sq.progress.hashed("u", 3))


def test_a_dimension_whose_unmatched_rows_show_is_refused() -> None:
    left, right = inputs()
    given = {"left": sq.progress.at_start(), "right": sq.progress.hashed("u", 3)}
    with pytest.raises(UnsupportedOperatorError, match="without a match in every step"):
        left.join(right, on="u", how="left").progressive(given)


# -- rows that are promised to come together ------------------------------------------------------------------

ORDERS = {"t": [1, 2, 4, 6], "order": [7, 8, 9, 7], "customer": [1, 1, 2, 1], "step": [0, 0, 1, 0]}
LINES = {"t": [1, 3, 4, 9], "of": [7, 7, 8, 9], "customer": [1, 1, 1, 2], "step": [0, 0, 0, 1]}


def lines_of_orders() -> Stream:
    """A query whose keys are orders."""
    orders = sq.from_frame(ORDERS, start="t", name="orders").with_duration(5)
    lines = sq.from_frame(LINES, start="t", name="lines").with_duration(5)
    joined = orders.join(lines.rename({"of": "order"}).drop("customer", "step"), on="order")
    return joined.group_apply("order", lambda order: order.count())


PROMISED = {
    "points in a column": lambda key: sq.progress.columns("step", together=key),
    "customers hashed": lambda key: sq.progress.hashed("customer", 4, together=key),
}


@pytest.mark.parametrize("name", PROMISED)
def test_over_time_keys_that_come_together_are_as_good_as_hashed_ones(name: str) -> None:
    given = {"orders": PROMISED[name]("order"), "lines": PROMISED[name]("of")}
    query = lines_of_orders()
    answers = list(query.progressive(given))
    assert answers[-1].frame.rows() == query.collect(sort=True).rows()
    for early in answers:
        there = early.provenance()["orders"]["order"].unique().to_list()
        assert early.frame.rows() == query.where(sq.col("order").is_in(there)).collect(sort=True).rows()
    with sq.local(cores=2) as cluster:
        shared = [early.frame.rows() for early in query.progressive(given, on=cluster)]
    assert shared == [early.frame.rows() for early in answers]


def test_over_time_without_the_promise_other_keys_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="looks at rows of different steps"):
        lines_of_orders().progressive(sq.progress.hashed("customer", 4))
    with pytest.raises(UnsupportedOperatorError, match=r"over time, and its input 'orders' has columns\(step\)"):
        lines_of_orders().progressive(sq.progress.columns("step"))


def test_over_time_a_promise_that_is_not_kept_is_told_whenever_rows_live() -> None:
    orders = sq.from_frame({"t": [1, 50], "order": [7, 7], "step": [0, 1]}, start="t", name="orders")
    query = orders.group_apply("order", lambda order: order.count())
    with pytest.raises(InputError, match="rows of order = 7 were promised to come together"):
        next(query.progressive(sq.progress.columns("step", together="order")))
    trusted = query.progressive(sq.progress.columns("step", together="order", trust=True))
    assert len(list(trusted)) == 2
