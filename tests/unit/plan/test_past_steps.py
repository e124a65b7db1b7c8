"""Where progress order and keys agree, operators forget the rows of past steps; the answers stay the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import squill as sq
from squill.engine.compile import compile_plan
from squill.engine.egress_changes import ChangeRowsSink
from squill.engine.run import source_arrivals, steps
from squill.plan.assignment import Assignment
from squill.plan.build.progress import inputs_of, over_progress
from squill.plan.node import Node, walk
from squill.plan.nodes import Join, WithDuration
from squill.plan.nodes.progress import ProgressSource
from squill.plan.past_steps import forget_past_steps, join_by_step
from squill.plan.rewrite import rewrite
from squill.runtime.progressive import start
from squill.stream import Stream
from squill.testing import assert_same_events
from tests.property.test_state_round_trip import collect_with_restarts

ORDERS = 200
CHANCE = random.Random(3)
CUSTOMERS = sq.from_frame({"customer": range(20), "segment": [n % 3 for n in range(20)]}, name="customers")
ORDERED = sq.from_frame(
    {"order": range(ORDERS), "customer": [CHANCE.randrange(20) for _ in range(ORDERS)]}, name="orders"
)
LINES = sq.from_frame(
    {
        "of": [None if n % 50 == 0 else CHANCE.randrange(ORDERS + 20) for n in range(3 * ORDERS)],
        "price": [CHANCE.randrange(100) for _ in range(3 * ORDERS)],
    },
    name="lines",
)


def per_order() -> Stream:
    sold = ORDERED.join(CUSTOMERS.where(sq.col("segment") != 1), on="customer")
    return sold.join(LINES, left_on="order", right_on="of").group_aggregate(
        ["order", "customer"], revenue=sq.sum("price")
    )


def open_orders() -> Stream:
    return ORDERED.where_not_exists(LINES.where(sq.col("price") > 50), left_on="order", right_on="of")


def both_kinds() -> Stream:
    per_line = LINES.group_aggregate("of", n=sq.count())
    return per_line.share(lambda s: s.where(sq.col("n") > 2).union(s.where(sq.col("n") < 2)))


def per_computed() -> Stream:
    priced = LINES.select("of", "price", twice=2 * sq.col("price"), left=100 - sq.col("price"))
    marked = ORDERED.select("order", twice=sq.col("customer") * 2)
    return marked.join(priced, left_on="order", right_on="of", where=sq.col("left") > 50)


QUERIES: dict[str, Callable[[], Stream]] = {
    "grouped": per_order,
    "best": lambda: per_order().aggregate(best=sq.top_k("revenue", 3), n=sq.count()),
    "by customer": lambda: per_order().group_aggregate("customer", revenue=sq.sum("revenue")),
    "open": open_orders,
    "outer": lambda: ORDERED.join(LINES, left_on="order", right_on="of", how="left"),
    "distinct": lambda: LINES.select("of").distinct(),
    "united": both_kinds,
    "average": lambda: LINES.group_aggregate("of", m=sq.mean("price")).where(sq.col("m") > 30),
    "computed": per_computed,
    "source twice": lambda: LINES.share(
        lambda s: s.group_aggregate("of", n=sq.count()).select("n").union(s.aggregate(n=sq.count()))
    ),
}


def by_order(number: int = 8) -> dict[str, Assignment]:
    return {
        "customers": sq.progress.at_start(),
        "orders": sq.progress.hashed("order", number),
        "lines": sq.progress.hashed("of", number),
    }


def assigned(query: Stream, given: dict[str, Assignment]) -> dict[str, Assignment]:
    names = {node.label for node in walk(query.plan) if not node.inputs}  # type: ignore[attr-defined]
    return {name: assignment for name, assignment in given.items() if name in names}


def shown(query: Stream, given: dict[str, Assignment], **options: Any) -> list[Any]:
    return [
        (early.progress, early.fraction, early.frame.rows(), early.changes.rows())
        for early in query.progressive(assigned(query, given), **options)
    ]


def planned(query: Stream, given: dict[str, Assignment]) -> Node:
    node = rewrite(query.plan)
    return over_progress(node, inputs_of(node, assigned(query, given)), 1)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_do_not_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QUERIES[name]()
    plan = planned(query, by_order())
    assert forget_past_steps(plan) != plan
    forgetful, coarse = shown(query, by_order()), shown(query, by_order(), coarsen=3)
    with sq.local(cores=2) as cluster:
        assert shown(query, by_order(), on=cluster) == forgetful
    monkeypatch.setattr(start, "forget_past_steps", lambda plan: plan)
    assert shown(query, by_order()) == forgetful
    assert shown(query, by_order(), coarsen=3) == coarse


OTHERS: dict[str, tuple[Callable[[], Stream], dict[str, Assignment]]] = {
    "by another column": (lambda: ORDERED.group_aggregate("customer", n=sq.count()), by_order()),
    "not by a hash": (lambda: LINES.group_aggregate("of", n=sq.count()), {"lines": sq.progress.rows(50)}),
    "nothing to forget": (lambda: LINES.where(sq.col("price") > 3), by_order()),
    "a dimension": (lambda: CUSTOMERS.group_aggregate("customer", n=sq.count()), by_order()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_plans_stay_as_they_are(name: str) -> None:
    query, given = OTHERS[name]
    plan = planned(query(), given)
    assert forget_past_steps(plan) is plan


def test_rows_stay_where_rows_of_different_steps_meet() -> None:
    plan = forget_past_steps(planned(QUERIES["by customer"](), by_order()))
    (lasting,) = [node for node in walk(plan) if isinstance(node, WithDuration)]
    assert "order" in lasting.parent.keys  # type: ignore[attr-defined]
    brief = {node.label: node.brief for node in walk(plan) if isinstance(node, ProgressSource)}
    assert brief == {"orders": True, "customers": False, "lines": True}


def most_state(plan: Node) -> int:
    """Return how many rows and keys are held at most."""
    pipeline = compile_plan(plan, ChangeRowsSink(plan))
    inputs = [(source_arrivals(source, 16), entry) for source, entry in pipeline.entries]
    return max(pipeline.state_rows for _ in steps(inputs, clocks=True))


def test_state_does_not_grow_with_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squill.engine.progress.arrivals.SMALL_STEP", 1)
    monkeypatch.setattr("squill.engine.operators.interval_join.SLACK", 8)
    query = LINES.join(ORDERED, left_on="of", right_on="order").group_aggregate("of", n=sq.count())
    many, few = by_order(50), by_order(5)
    assert most_state(planned(query, many)) > 600
    assert most_state(forget_past_steps(planned(query, many))) < 100
    assert most_state(forget_past_steps(planned(query, few))) > 2 * most_state(forget_past_steps(planned(query, many)))


@pytest.mark.parametrize("batch_rows", [7, 1000])
@pytest.mark.parametrize("name", ["grouped", "open", "outer", "source twice"])
def test_state_is_saved_and_loaded_after_every_batch(name: str, batch_rows: int) -> None:
    query = QUERIES[name]()
    plan = join_by_step(forget_past_steps(planned(query, by_order())))
    plain = Stream(planned(query, by_order()))
    assert_same_events(collect_with_restarts(Stream(plan), batch_rows), collect_with_restarts(plain, 1000))


def test_joins_look_at_one_step_at_a_time() -> None:
    plan = join_by_step(forget_past_steps(planned(per_order(), by_order())))
    assert [node.by_step for node in walk(plan) if isinstance(node, Join)] == ["right", "none"]
    lasting = planned(per_order(), by_order())
    assert [node.by_step for node in walk(join_by_step(lasting)) if isinstance(node, Join)] == [None, None]
