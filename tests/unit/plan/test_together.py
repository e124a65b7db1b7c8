"""Rows that are promised to come together: keys by which past steps are forgotten, and a promise that is checked."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.plan.assignment import Assignment, Columns, Hashed
from squill.plan.node import walk
from squill.plan.nodes import FrameSource, Join
from squill.plan.nodes.progress import ProgressSource
from squill.plan.past_steps import forget_past_steps, join_by_step
from squill.runtime.progressive import start
from squill.runtime.progressive.answers import EarlyAnswers
from squill.stream import Stream
from tests.early_answers import assert_answers, expected_answers
from tests.unit.plan.test_past_steps import assigned, most_state, planned

STEPS = 24
CUSTOMERS = sq.from_frame({"customer": range(30), "segment": [n % 3 for n in range(30)]}, name="customers")


def orders_and_lines(per_step: int) -> tuple[Stream, Stream]:
    """Return so many orders a step, and three times as many lines of any of them, each at its order's step."""
    orders, chance = per_step * STEPS, random.Random(11)
    steps = [order // per_step for order in range(orders)]
    customers = [chance.randrange(30) for _ in range(orders)]
    of = [chance.randrange(orders) for _ in range(3 * orders)]
    lines = {"of": of, "buyer": [customers[order] for order in of], "at": [steps[order] for order in of],
             "price": [chance.randrange(100) for _ in of]}  # fmt: skip
    ordered = {"order": range(orders), "customer": customers, "step": steps}
    return sq.from_frame(ordered, name="orders"), sq.from_frame(lines, name="lines")


# Few, as the reference answers anew at every step.
ORDERED, LINES = orders_and_lines(per_step=5)
BY_STEP: dict[str, Assignment] = {
    "customers": sq.progress.at_start(),
    "orders": sq.progress.columns("step", together="order"),
    "lines": sq.progress.columns("at", together="of"),
}
BY_CUSTOMER: dict[str, Assignment] = {
    "customers": sq.progress.hashed("customer", 8),
    "orders": sq.progress.hashed("customer", 8, together="order"),
    "lines": sq.progress.hashed("buyer", 8, together="of"),
}


def sold() -> Stream:
    return ORDERED.join(LINES, left_on="order", right_on="of")


def per_order() -> Stream:
    return sold().group_aggregate(["order", "customer"], revenue=sq.sum("price"))


QUERIES: dict[str, Callable[[], Stream]] = {
    "joined": sold,
    "grouped": per_order,
    "by customer": lambda: per_order().group_aggregate("customer", revenue=sq.sum("revenue")),
    "best": lambda: per_order().aggregate(best=sq.top_k("revenue", 3)),
    "with customers": lambda: sold().join(CUSTOMERS, on="customer").group_aggregate("customer", n=sq.count()),
    "without lines": lambda: ORDERED.where_not_exists(LINES, left_on="order", right_on="of"),
    "outer": lambda: ORDERED.join(LINES.where(sq.col("price") > 80), left_on="order", right_on="of", how="left"),
    "distinct": lambda: LINES.select("of", "buyer").distinct(),
    "united": lambda: ORDERED.select("order").union(LINES.select(order="of")).group_aggregate("order", n=sq.count()),
}


def chosen(query: Stream, given: dict[str, Assignment]) -> list[Assignment]:
    return [given[node.label] for node in walk(query.plan) if isinstance(node, FrameSource)]


@pytest.mark.parametrize("given", [BY_STEP, BY_CUSTOMER], ids=["by step", "by customer"])
@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_the_reference(name: str, given: dict[str, Assignment]) -> None:
    query = QUERIES[name]()
    plan = planned(query, given)
    assert forget_past_steps(plan) is not plan
    for coarsen in (1, 3):
        expected = expected_answers(query, chosen(query, given), coarsen)
        assert_answers(query.progressive(assigned(query, given), coarsen=coarsen), expected)
        with sq.local(cores=2) as cluster:
            assert_answers(query.progressive(assigned(query, given), coarsen=coarsen, on=cluster), expected)


def test_rows_held_do_not_grow_with_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squill.engine.progress.arrivals.SMALL_STEP", 1)
    monkeypatch.setattr("squill.engine.operators.interval_join.SLACK", 8)
    ordered, all_lines = (stream.collect() for stream in orders_and_lines(per_step=10))

    def held(steps: int, *, together: bool) -> int:
        orders = sq.from_frame(ordered.filter(pl.col("step") < steps), name="orders")
        lines = sq.from_frame(all_lines.filter(pl.col("at") < steps), name="lines")
        query = orders.join(lines, left_on="order", right_on="of").group_aggregate("order", n=sq.count())
        given = {
            "orders": sq.progress.columns("step", together="order" if together else None),
            "lines": sq.progress.columns("at", together="of" if together else None),
        }
        return most_state(forget_past_steps(planned(query, given)))

    assert held(24, together=True) < 1.5 * held(6, together=True) < 150
    assert held(24, together=False) > 3 * held(6, together=False) > 600


def test_joins_look_at_one_step_at_a_time() -> None:
    plan = join_by_step(forget_past_steps(planned(sold(), BY_STEP)))
    assert [node.by_step for node in walk(plan) if isinstance(node, Join)] == ["none"]


def test_a_hash_holds_behind_a_join_by_a_promised_key() -> None:
    query = sold().group_aggregate("customer", n=sq.count())
    plan = forget_past_steps(planned(query, BY_CUSTOMER))
    assert all(node.brief for node in walk(plan) if isinstance(node, ProgressSource))
    assert plan.name == "with_duration"


def test_values_of_two_sides_make_no_key_of_their_own() -> None:
    """Neither (a, b_right) nor (a_right, b) was hashed, although each column carries a hashed one."""
    left = sq.from_frame({"a": [1, 1], "b": [1, 2], "k": [1, 2]}, name="left")
    right = sq.from_frame({"a": [1, 1], "b": [1, 2], "k": [1, 2]}, name="right")
    query = left.join(right, on="k").group_aggregate(["a", "b_right"], n=sq.count())
    given = sq.progress.hashed(["a", "b"], 4, together="k")
    plan = forget_past_steps(planned(query, {"left": given, "right": given}))
    assert plan.name == "aggregate"


def test_inputs_that_promise_nothing_are_not_forgotten() -> None:
    plan = planned(sold(), {**BY_STEP, "lines": sq.progress.columns("at")})
    assert forget_past_steps(plan) is plan


def broken(at: int, *, trust: bool = False) -> EarlyAnswers:
    """Return the answers over two tables that agree but for one row, which comes at another step."""
    orders = sq.from_frame({"order": [1, 2, 3], "step": [0, 1, 2]}, name="orders")
    lines = sq.from_frame({"of": [1, 2, 2, None], "step": [0, 1, at, 2]}, name="lines")
    return orders.join(lines, left_on="order", right_on="of").progressive(
        {
            "orders": sq.progress.columns("step", together="order", trust=trust),
            "lines": sq.progress.columns("step", together="of", trust=trust),
        }
    )


def test_a_broken_promise_is_an_error_before_the_first_answer() -> None:
    assert len(list(broken(1))) == 3
    with pytest.raises(sq.errors.InputError, match=r"rows of order = 2 were promised .* 2 different values of step"):
        next(broken(2))


def test_nobody_checks_what_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "whole_answer", lambda *_: pytest.fail("read once more"))
    assert len(list(broken(1, trust=True))) == 3


def test_promises_are_checked_across_shards_and_files(tmp_path: Path) -> None:
    for number in range(4):
        pl.DataFrame({"k": [number, 9], "p": [number, 0 if number < 3 else 5]}).write_parquet(
            tmp_path / f"{number}.parquet"
        )
    query = sq.scan(str(tmp_path / "*.parquet")).select("k").distinct()
    with sq.local(cores=2) as cluster, pytest.raises(sq.errors.InputError, match="rows of k = 9"):
        next(query.progressive(sq.progress.columns("p", together="k"), on=cluster))
    few = sq.scan(str(tmp_path / "*.parquet")).where(sq.col("k") < 9).select("k").distinct()
    assert len(list(few.progressive(sq.progress.columns("p", together="k")))) == 5


def test_hashed_columns_that_a_key_does_not_decide_break_the_promise() -> None:
    rows = sq.from_frame({"customer": [1, None, 2], "order": [1, 1, 2]}, name="rows")
    answers = rows.select("order").distinct().progressive(sq.progress.hashed("customer", 3, together="order"))
    with pytest.raises(sq.errors.InputError, match=r"rows of order = 1 .* 2 different values of customer"):
        next(answers)


def test_explain_names_the_promise_and_what_its_check_costs() -> None:
    text = per_order().progressive(assigned(per_order(), BY_STEP)).explain()
    assert "columns(at; together by of), at one step each" in text
    assert text.endswith("one scan of orders, lines checks that rows come together as promised")


def test_a_promise_is_no_part_of_the_order_of_stored_rows(tmp_path: Path) -> None:
    given = sq.progress.columns("at", together="of")
    with sq.local(cores=2) as cluster:
        cluster.from_frame(LINES.collect()).to_storage(str(tmp_path / "d"), progress=given)
    stored = sq.scan(str(tmp_path / "d"), name="lines").group_aggregate("of", n=sq.count())
    plain = [early.frame.rows() for early in stored.progressive()]
    promised = stored.progressive({"lines": sq.progress.columns("at", together="of", trust=True)})
    assert "stored in this order, at one step each" in promised.explain()
    assert [early.frame.rows() for early in promised] == plain


def test_assignments_are_equal_by_their_order() -> None:
    assert sq.progress.columns("at", together="of").order == Columns("at")
    assert sq.progress.hashed("x", 3, together="of", trust=True).order == Hashed(("x",), 3)
