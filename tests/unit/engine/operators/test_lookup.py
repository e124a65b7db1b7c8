"""Joins and existence tests of which an input is relational: a table that the other side streams past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.engine import lookup_table
from squill.engine.batch import Batch
from squill.engine.columns import framed
from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.lookup import LookupOperator
from squill.engine.operator import Operator
from squill.engine.operators.lookup_exists import LookupExists
from squill.engine.operators.lookup_join import LookupJoin
from squill.engine.relational_variants import choose_relational
from squill.engine.sorted_table import SortedTable
from squill.plan.nodes import Exists, Join
from squill.stream import Stream
from squill.time import INFINITY
from tests.unit.engine.operators.rows import edges, intervals, points, rows

NAN = float("nan")


def table(**columns: Any) -> Stream:
    return sq.from_frame(columns)


def test_every_row_keeps_its_lifetime() -> None:
    names = table(k=[1, 2], name=["one", "two"])
    assert rows(intervals((1, 4), (2, None), (3, 5), k=[2, 1, 9]).join(names, on="k")) == [
        (1, 4, 2, "two"),
        (2, None, 1, "one"),
    ]


def test_several_matches_multiply_rows() -> None:
    assert rows(points(1, 2, k=[1, 2]).join(table(k=[1, 1, 3], v=[5, 6, 7]), on="k")) == [(1, 2, 1, 5), (1, 2, 1, 6)]


@pytest.mark.parametrize("values", [[5], [5, 6]])
def test_both_edges_get_the_same_matches(values: list[int]) -> None:
    right = table(x=["a"] * len(values), v=values)
    assert rows(edges((1, 5), (2, None)).join(right, on="x")) == [
        row for value in values for row in [(1, 5, "a", value)]
    ] + [(2, None, "a", value) for value in values]


def test_left_columns_come_first_whichever_side_is_relational() -> None:
    events, names = points(1, k=[1], x=[7]), table(k=[1], x=["one"])
    assert rows(events.join(names, on="k")) == [(1, 2, 1, 7, "one")]
    assert rows(names.join(events, on="k")) == [(1, 2, 1, "one", 7)]


def test_columns_of_different_names_are_both_shown() -> None:
    joined = points(1, a=[1]).join(table(b=[1, 2]), left_on="a", right_on="b")
    assert rows(joined) == [(1, 2, 1, 1)]


def test_null_keys_match_nothing_and_nan_is_a_key() -> None:
    events, right = points(1, 2, 3, k=[None, NAN, -0.0]), table(k=[None, NAN, 0.0], v=[1, 2, 3])
    assert [row[3] for row in rows(events.join(right, on="k"))] == [2, 3]


def test_null_keys_of_a_group_are_keys() -> None:
    relation = table(k=[None, None, 1], v=[1, 2, 3])
    squared = relation.group_apply("k", lambda g: g.join(g.select(w="v")))
    assert len(rows(squared)) == 5


def test_condition_sees_pairs() -> None:
    events, limits = points(1, 2, k=[1, 1], x=[5, 9]), table(k=[1, 1], x=[4, 8])
    assert rows(events.join(limits, on="k", where=sq.col("x") > sq.col("x_right"))) == [
        (1, 2, 1, 5, 4),
        (2, 3, 1, 9, 4),
        (2, 3, 1, 9, 8),
    ]


def test_null_condition_is_not_true() -> None:
    joined = points(1, k=[1]).join(table(k=[1, 1], v=[None, 3]), on="k", where=sq.col("v") > 2)
    assert rows(joined) == [(1, 2, 1, 3)]


def test_cross_join_pairs_everything() -> None:
    assert rows(points(1, 2, x=[1, 2]).join(table(v=[5, 6]), how="cross")) == [
        (1, 2, 1, 5), (1, 2, 1, 6), (2, 3, 2, 5), (2, 3, 2, 6),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["inner", "cross"])
def test_empty_table_gives_nothing(how: str) -> None:
    empty = sq.from_frame(pl.DataFrame(schema={"v": pl.Int64}))
    on: dict[str, Any] = {"left_on": "x", "right_on": "v"} if how == "inner" else {}
    assert rows(points(1, x=[1]).join(empty, how=how, **on)) == []


def test_outer_join_with_a_table() -> None:
    events, names = points(1, 2, k=[1, 9]), table(k=[1, 2], name=["one", "two"])
    assert rows(events.join(names, on="k", how="left")) == [(1, 2, 1, "one"), (2, 3, 9, None)]


def test_output_is_cut_into_pieces_in_time_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_table, "MOST_PAIRS", 3)
    right = table(k=[1] * 5 + [2], v=[1, 2, 3, 4, 5, 6])
    answer = points(1, 2, 3, k=[1, 2, 1]).join(right, on="k").collect()
    assert answer["start"].to_list() == [1] * 5 + [2] + [3] * 5
    assert answer["v"].to_list() == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5]


def test_exists_filters_whole_lifetimes() -> None:
    events, known = intervals((1, 4), (2, 5), (3, None), k=[1, 2, None]), table(k=[1, 1, None])
    assert rows(events.where_exists(known, on="k")) == [(1, 4, 1)]
    assert rows(events.where_not_exists(known, on="k")) == [(2, 5, 2), (3, None, None)]


def test_exists_with_a_condition_needs_one_match_that_passes() -> None:
    events, limits = points(1, 2, k=[1, 1], x=[5, 9]), table(k=[1, 1, 1], v=[8, 9, None])
    condition = sq.col("x") > sq.col("v")
    assert rows(events.where_exists(limits, on="k", where=condition)) == [(2, 3, 1, 9)]
    assert rows(events.where_not_exists(limits, on="k", where=condition)) == [(1, 2, 1, 5)]


def test_relations_join_as_tables_do() -> None:
    left, right = table(k=[1, 1, None], x=[1, 2, 3]), table(k=[1, None, 2], y=["a", "b", "c"])
    assert rows(left.join(right, on="k")) == [(1, 1, "a"), (1, 2, "a")]
    assert rows(left.join(right, on="k", how="full")) == [
        (None, None, "b"), (None, 3, None), (1, 1, "a"), (1, 2, "a"), (2, None, "c"),
    ]  # fmt: skip
    assert rows(left.where_exists(right, on="k")) == [(1, 1), (1, 2)]


# -- inputs in the order of the key -------------------------------------------------------------------------


def ordered(**columns: Any) -> Stream:
    return sq.from_frame(columns, sorted_by="k")


def uses_merge(query: Stream) -> bool:
    operator = choose_relational(query.plan)  # type: ignore[arg-type]
    assert isinstance(operator, LookupOperator)
    return isinstance(operator._table, SortedTable)


@pytest.mark.parametrize("values", [[None, 1, 2, 2, 5, 9], [None, 1, 2, 5, 9]])
def test_inputs_in_order_are_merged(values: list[int | None]) -> None:
    left = ordered(k=[None, -3, 1, 2, 2, 3, 9, 9], x=[0, 1, 2, 3, 4, 5, 6, 7])
    right, plain = {"k": values, "y": list(range(len(values)))}, table(k=[None, -3, 1, 2, 2, 3, 9, 9], x=list(range(8)))
    assert uses_merge(left.join(ordered(**right), on="k"))
    assert not uses_merge(plain.join(ordered(**right), on="k"))
    asked: list[Callable[[Stream, Stream], Stream]] = [
        lambda a, b: a.join(b, on="k"),
        lambda a, b: b.join(a, on="k", where=sq.col("x") > sq.col("y")),
        lambda a, b: a.where_exists(b, on="k"),
        lambda a, b: a.where_not_exists(b, on="k", where=sq.col("x") > sq.col("y")),
    ]
    for ask in asked:
        assert rows(ask(left, ordered(**right))) == rows(ask(plain, table(**right)))


def test_order_lasts_through_filters_and_names() -> None:
    left = ordered(k=[1, 2, 3], x=[1, 2, 3]).where(sq.col("x") > 1).select(key="k", v="x")
    right = ordered(k=[1, 2, 3], y=[4, 5, 6])
    joined = left.join(right, left_on="key", right_on="k")
    assert uses_merge(joined)
    assert rows(joined) == [(2, 2, 2, 5), (3, 3, 3, 6)]


@pytest.mark.parametrize(
    "left",
    [
        sq.from_frame({"k": [1], "x": [1]}, sorted_by=["x", "k"]),
        ordered(k=[1]).select(k=sq.col("k") * -1),
        ordered(k=[1]).union(ordered(k=[0])),
    ],
)
def test_order_that_is_not_known_is_not_used(left: Stream) -> None:
    assert not uses_merge(left.join(ordered(k=[1], y=[1]), on="k"))


@pytest.mark.parametrize("key", [pl.UInt64, pl.Float64, pl.String])
def test_keys_that_are_not_integers_are_hashed(key: type[pl.DataType]) -> None:
    frame = pl.DataFrame({"k": pl.Series(["1", "2"]).cast(key)})
    left, right = (sq.from_frame(frame, sorted_by="k") for _ in range(2))
    assert not uses_merge(left.join(right, on="k"))


def test_dates_are_merged() -> None:
    days = pl.Series("k", [0, 1, 5]).cast(pl.Date)
    left, right = (sq.from_frame({"k": days, name: [1, 2, 3]}, sorted_by="k") for name in "ab")
    assert uses_merge(left.join(right, on="k"))
    assert [row[1:] for row in rows(left.join(right, on="k"))] == [(1, 1), (2, 2), (3, 3)]


# -- which variant, and how it waits ------------------------------------------------------------------------


def test_variant_is_chosen_by_what_is_relational() -> None:
    events, names = points(1, k=[1]), table(k=[1])
    chosen = {
        (left, right): choose_relational(sides[left].join(sides[right], on="k").plan)  # type: ignore[arg-type]
        for sides in [{"stream": events, "table": names}]
        for left in sides
        for right in sides
    }
    assert chosen.pop(("stream", "stream")) is None
    assert all(isinstance(operator, LookupJoin) for operator in chosen.values())


def test_existence_of_streams_among_relational_rows_is_temporal() -> None:
    events, names = points(1, k=[1]), table(k=[1])
    outside, inside = names.where_exists(events, on="k").plan, events.where_exists(names, on="k").plan
    assert isinstance(outside, Exists)
    assert isinstance(inside, Exists)
    assert choose_relational(outside) is None
    assert isinstance(choose_relational(inside), LookupExists)


def test_smaller_relation_becomes_the_table() -> None:
    small, large = table(k=[1, 2], a=[3, 4]), table(k=[1, 2, 2], b=[5, 6, 7])
    for left, right in [(small, large), (large, small)]:
        node = left.join(right, on="k").plan
        assert isinstance(node, Join)
        operator = choose_relational(node)
        assert isinstance(operator, LookupJoin)
        assert operator._table_port == (0 if left is small else 1)


@pytest.mark.parametrize("is_complete", [False, True])
def test_table_that_was_collected_stays_the_table(is_complete: bool) -> None:
    """A query that goes on may find the other relation smaller than the one it has collected."""
    few, many = {"k": [1, 2], "a": [3, 4]}, {"k": [1, 2, 2], "a": [5, 6, 7]}
    begun, goes_on = (table(**left).join(table(**right), on="k").plan for left, right in [(few, many), (many, few)])
    asked, asking = (
        Batch.relational({name: pl.Series(name, side[name]) for name in side}, len(side["k"])) for side in (few, many)
    )
    with compile_plan(begun, Sink(begun)) as first, compile_plan(goes_on, sink := CollectSink(goes_on)) as second:
        (_, left), (_, _) = first.entries
        left.push(asked)
        if is_complete:
            left.advance(INFINITY)
        second.operators[-1].load(first.operators[-1].save())
        (_, left), (_, right) = second.entries
        if not is_complete:
            left.advance(INFINITY)
        right.push(asking)
        right.advance(INFINITY)
    found = framed(list(Batch.concat(sink.pieces()).columns.values()))
    assert found.rows() == [(1, 3, 5), (2, 4, 6), (2, 4, 7)]


class Sink(Operator):
    def __init__(self, node: object) -> None:
        super().__init__(node)  # type: ignore[arg-type]
        self.told: list[object] = []

    def push(self, batch: Batch, port: int = 0) -> None:
        self.told.extend(batch.sync.tolist())

    def advance(self, t: int, port: int = 0) -> None:
        self.told.append(("clock", t))


def test_rows_and_time_wait_for_the_table() -> None:
    node = points(1, k=[1]).join(table(k=[1], v=[2]), on="k").plan
    pipeline = compile_plan(node, sink := Sink(node))
    (_, events), (_, names) = pipeline.entries
    events.push(Batch(np.array([1, 3]), 1, {"k": pl.Series("k", [1, 1])}))
    events.advance(4)
    names.push(Batch.relational({"k": pl.Series("k", [1]), "v": pl.Series("v", [2])}, 1))
    assert sink.told == []
    assert pipeline.state_rows == 3
    names.advance(INFINITY)
    assert sink.told == [1, 3, ("clock", 4)]
    assert pipeline.state_rows == 1
    events.push(Batch(np.array([7]), 1, {"k": pl.Series("k", [1])}))
    assert sink.told[3:] == [7]
