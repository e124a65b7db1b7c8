"""Joins of aggregates, whose rows end by number: as the reference has it, for any batches, saved after each."""

from __future__ import annotations

import random

import pytest

import squill as sq
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.operator import NUMBERED
from squill.engine.operators.edge_join import EdgeJoin
from squill.plan.rewrite import rewrite
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.property.test_state_round_trip import collect_with_restarts


def counted(seed: int, column: str) -> Stream:
    chance = random.Random(seed)
    times = sorted(chance.randrange(60) for _ in range(80))
    keys = [chance.choice([None, 1, 2, 3]) for _ in times]
    events = sq.from_frame({"t": times, "k": keys, "x": [chance.randrange(9) for _ in times]}, start="t")
    return events.group_apply("k", lambda key: key.sliding_window(7).aggregate(**{column: sq.count()}))


QUERIES = {
    "both": lambda: counted(1, "a").join(counted(2, "b"), on="k"),
    "filtered": lambda: counted(3, "a").where(sq.col("a") > 1).join(counted(4, "b"), on="k", where=sq.col("b") > 1),
    "joined again": lambda: counted(5, "a").join(counted(6, "b"), on="k").join(counted(7, "c"), on="k"),
    "with itself": lambda: counted(8, "a").share(lambda s: s.join(s.select("k", b=sq.col("a") + 1), on="k")),
    "with edges": lambda: counted(9, "a").join(counted(10, "b").wait_for_ends(), on="k"),
}


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
@pytest.mark.parametrize("name", QUERIES)
def test_as_the_reference(name: str, batch_rows: int) -> None:
    query = QUERIES[name]()
    expected = reference.frame(query.plan)
    assert expected.height
    assert_same_events(query.collect(batch_rows=batch_rows), expected)
    assert_same_events(collect_with_restarts(query, batch_rows), expected)


def test_aggregates_number_their_rows_for_joins() -> None:
    node = rewrite(QUERIES["both"]().plan)
    pipeline = compile_plan(node, CollectSink(node))
    (join,) = [operator for operator in pipeline.operators if isinstance(operator, EdgeJoin)]
    feeding = [
        operator for operator in pipeline.operators if any(consumer is join for consumer, _ in operator.consumers)
    ]
    assert [operator.demand for operator in feeding] == [NUMBERED, NUMBERED]
