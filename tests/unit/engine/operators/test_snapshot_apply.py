"""The user's own function over the rows alive at each change point."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import UserFunctionError
from squill.stream import Stream
from squill.testing import assert_same_events, reference
from tests.unit.engine.operators.rows import edges, intervals, points, rows

BATCHES = (1, 2, None)
COUNT = {"n": pl.Int64}


def listed(alive: pl.DataFrame) -> dict[str, Any]:
    return {"xs": alive["x"].to_list()}


LISTED = {"xs": pl.List(pl.Int64)}


def test_each_change_point_has_an_answer_until_the_next() -> None:
    query = intervals((1, 5), (3, 7), x=[1, 2]).snapshot_apply(listed, schema=LISTED)
    assert rows(query) == [(1, 3, [1]), (3, 5, [1, 2]), (5, 7, [2])]


def test_nothing_alive_gives_nothing_and_no_call() -> None:
    heights = []

    def count(alive: pl.DataFrame) -> dict[str, int]:
        heights.append(alive.height)
        return {"n": alive.height}

    assert rows(intervals((1, 2), (5, 6), x=[1, 2]).snapshot_apply(count, schema=COUNT)) == [(1, 2, 1), (5, 6, 1)]
    assert set(heights) == {1}


def test_equal_neighbours_are_not_merged() -> None:
    query = intervals((1, 3), (3, 5), x=[1, 2]).snapshot_apply(lambda alive: {"n": 7}, schema=COUNT)
    assert rows(query) == [(1, 3, 7), (3, 5, 7)]


def test_rows_are_in_order_of_start_then_payload() -> None:
    query = edges((1, None), (2, None), (2, None), x=[9, 8, 7]).snapshot_apply(listed, schema=LISTED)
    assert rows(query)[-1] == (2, None, [9, 7, 8])


def test_the_function_runs_per_key_and_sees_the_key() -> None:
    stream = intervals((1, 4), (2, 4), k=["a", "b"], x=[1, 2])
    query = stream.group_apply("k", lambda g: g.snapshot_apply(lambda alive: alive.select("k", "x")))
    assert rows(query) == [(1, 4, "a", 1), (2, 4, "b", 2)]


def test_the_schema_is_learnt_from_no_rows() -> None:
    query = points(1, x=[3]).snapshot_apply(lambda alive: alive.select(m=pl.col("x").max(), n=pl.len()))
    assert dict(query.schema) == {"m": pl.Int64(), "n": pl.UInt32()}
    assert rows(query) == [(1, 2, 3, 1)]


def test_none_gives_no_row() -> None:
    def odd(alive: pl.DataFrame) -> Any:
        return {"n": alive.height} if alive.height % 2 else None

    query = intervals((1, 9), (3, 5), x=[1, 2]).snapshot_apply(odd, schema=COUNT)
    assert rows(query) == [(1, 3, 1), (5, 9, 1)]


def test_relational_data_is_one_snapshot() -> None:
    query = sq.from_frame({"k": ["a", "b", "a"], "x": [1, 2, 3]}).group_apply(
        "k", lambda g: g.snapshot_apply(lambda alive: alive.select(pl.col("x").sum()))
    )
    assert sorted(query.collect().rows()) == [("a", 4), ("b", 2)]


@pytest.mark.parametrize("size", BATCHES)
def test_answers_can_be_asked_further(size: int | None) -> None:
    query = intervals((1, 5), (3, 7), x=[1, 2]).snapshot_apply(lambda alive: {"n": 7}, schema=COUNT)
    assert query.stitch().collect(batch_rows=size).rows() == [(1, 7, 7)]
    assert query.with_duration(1).collect(batch_rows=size).rows() == [(1, 2, 7), (3, 4, 7), (5, 6, 7)]


def test_columns_of_objects_are_seen_as_objects() -> None:
    codec = sq.codec(complex, pickle.dumps, pickle.loads)
    numbers = points(1, 2, x=[5, 6]).select_many(lambda row: [{"z": complex(row["x"], 1)}], schema={"z": codec})
    query = numbers.snapshot_apply(lambda alive: alive)
    assert query.collect()["z"].to_list() == [5 + 1j, 6 + 1j]


# -- errors -------------------------------------------------------------------------------------------------


def fails(function: Callable[..., Any]) -> str:
    stream = points(1, 4, k=["a", "b"], x=[7, 8])
    query = stream.group_apply("k", lambda g: g.snapshot_apply(function, schema=COUNT))
    texts = set()
    for size in BATCHES:
        with pytest.raises(UserFunctionError) as caught:
            query.collect(batch_rows=size)
        texts.add(str(caught.value))
    assert len(texts) == 1
    return texts.pop()


def test_an_error_names_the_function_the_instant_the_key_and_a_row() -> None:
    def divide(alive: pl.DataFrame) -> dict[str, int]:
        return {"n": 1 // (alive["x"][0] - 8)}

    assert fails(divide) == (
        "snapshot_apply(divide): it raised ZeroDivisionError: integer division or modulo by zero, at 4 for the key "
        "k='b'; the first row was {'k': 'b', 'x': 8}\n"
        "Hint: it must take whatever rows the input may have, nulls too: handle such rows in it, or filter them before."
    )


def test_wrong_answers_are_told() -> None:
    place = "at 1 for the key k='a'; the first row was {'k': 'a', 'x': 7}"
    hint = "Hint: return None, a dict, an iterable of dicts or a frame, with the columns n: Int64."
    assert fails(lambda alive: 5) == f"snapshot_apply(<lambda>): it returned an int, not rows, {place}\n{hint}"
    assert fails(lambda alive: {"m": 5}) == f"snapshot_apply(<lambda>): it returned a row without 'n', {place}\n{hint}"
    assert fails(lambda alive: {"n": "x"}) == (
        f"snapshot_apply(<lambda>): it returned 'n' as 'x' (str), not Int64, {place}\n{hint}"
    )
    assert fails(lambda alive: alive.select(n=pl.col("x").cast(pl.Int8))) == (
        f"snapshot_apply(<lambda>): it returned the column 'n' as Int8, not Int64, {place}\n{hint}"
    )


# -- elsewhere ----------------------------------------------------------------------------------------------


def test_shards_give_the_same_answer() -> None:
    columns = {"t": [i // 3 for i in range(60)], "k": [i % 7 for i in range(60)], "x": list(range(60))}

    def query(stream: Stream) -> Stream:
        return stream.sliding_window(5).snapshot_apply(listed, schema=LISTED)

    with sq.local(cores=2) as cluster:
        found = cluster.from_frame(columns, start="t").rekey("k").redistribute(3).query(query).collect()
    assert_same_events(found, reference.frame(sq.from_frame(columns, start="t").group_apply("k", query)))
