from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.errors import InputError, LateEventError, PlanError
from squill.stream import Stream
from squill.testing import assert_same_events

ROWS = pl.DataFrame(
    {"t": [3, 1, 7, 7, 25, 12, 31], "ad": ["a", "b", "a", None, "b", "a", "b"], "x": [1, 2, 3, 4, 5, 6, 7]}
)
IN_ORDER = ROWS.sort("t")
SCHEMA = dict(ROWS.schema)


def counted(stream: Stream) -> Stream:
    return stream.group_apply("ad", lambda g: g.tumbling_window(10).aggregate(n=sq.count(), x=sq.sum("x")))


def batches(frame: pl.DataFrame, rows: int) -> Iterator[pa.RecordBatch]:
    yield from frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks().to_batches(rows)


def answer(found: Iterator[pa.RecordBatch]) -> pl.DataFrame:
    return pl.DataFrame(pa.Table.from_batches(found))


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_batches_of_any_size_give_what_collect_gives(rows: int) -> None:
    query = counted(sq.from_frame(ROWS, start="t"))
    function = query.as_arrow_function()
    found = answer(function(batches(ROWS, rows)))
    assert_same_events(found, query.collect())
    assert found.to_arrow(compat_level=pl.CompatLevel.oldest()).schema == function.schema


Frames = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None]), st.integers(-5, 5)), max_size=25
).map(lambda rows: pl.DataFrame(rows, schema=SCHEMA, orient="row"))


@settings(max_examples=40, deadline=None)
@given(Frames, st.integers(1, 9))
def test_rows_that_stream_give_what_collect_gives(frame: pl.DataFrame, rows: int) -> None:
    frame = frame.sort("t")
    expected = counted(sq.from_frame(frame, start="t")).collect()
    empty = [pa.RecordBatch.from_pylist([], frame.to_arrow().schema)]
    for source in (sq.source(SCHEMA, start="t"), sq.from_frame(frame.clear(), start="t", sorted_by="t")):
        found = list(counted(source).as_arrow_function()(iter([*empty, *batches(frame, rows)])))
        assert_same_events(answer(iter(found)) if found else expected.clear(), expected)


def test_answers_leave_as_soon_as_time_allows() -> None:
    read: list[int] = []

    def one_by_one() -> Iterator[pa.RecordBatch]:
        for batch in batches(IN_ORDER, 1):
            read.append(batch.num_rows)
            yield batch

    first = next(counted(sq.source(SCHEMA, start="t")).as_arrow_function()(one_by_one()))
    assert first.to_pylist()[0]["start"] == 10
    assert len(read) < len(IN_ORDER)


def test_rows_meet_the_policy_of_their_source() -> None:
    dropping = counted(sq.source(SCHEMA, start="t", disorder=sq.drop())).as_arrow_function()
    in_time = ROWS.filter(pl.col("t") >= pl.col("t").cum_max())
    assert_same_events(answer(dropping(batches(ROWS, 2))), counted(sq.from_frame(in_time, start="t")).collect())
    throwing = counted(sq.source(SCHEMA, start="t")).as_arrow_function()
    with pytest.raises(LateEventError):
        list(throwing(batches(ROWS, 2)))


def test_broken_promise_of_order_is_an_error() -> None:
    function = counted(sq.from_frame(ROWS.clear(), start="t", sorted_by="t")).as_arrow_function()
    with pytest.raises(InputError, match="is not in the order of sorted_by"):
        list(function(batches(ROWS, 1)))


def test_it_can_be_pickled_and_called_again() -> None:
    query = counted(sq.from_frame(ROWS, start="t"))
    function = pickle.loads(pickle.dumps(query.as_arrow_function()))
    for _ in range(2):
        assert_same_events(answer(function(batches(ROWS, 3))), query.collect())


def test_it_takes_only_what_it_is_fed() -> None:
    function = counted(sq.from_frame(ROWS, start="t")).as_arrow_function()
    assert list(function(iter([]))) == []


def test_relational_rows() -> None:
    query = sq.from_frame(ROWS.drop("t")).group_aggregate("ad", x=sq.sum("x"))
    assert_same_events(answer(query.as_arrow_function()(batches(ROWS.drop("t"), 2))), query.collect())


def test_other_inputs_are_read_by_every_call() -> None:
    owners = sq.from_frame({"ad": ["a", "b"], "owner": ["me", "you"]}, name="owners")
    query = sq.from_frame(ROWS, start="t", name="clicks").join(owners, on="ad")
    function = query.as_arrow_function(input="clicks")
    for _ in range(2):
        assert_same_events(answer(function(batches(ROWS, 2))), query.collect())


def test_columns_beside_the_inputs_own_are_left_alone() -> None:
    query = counted(sq.from_frame(ROWS, start="t"))
    more = ROWS.with_columns(other=pl.lit(1))
    assert_same_events(answer(query.as_arrow_function()(batches(more, 2))), query.collect())


def test_wrong_batches_are_refused() -> None:
    function = counted(sq.from_frame(ROWS, start="t", name="clicks")).as_arrow_function()
    with pytest.raises(InputError, match="input 'clicks': a batch has no column 'x'; it has t, ad"):
        list(function(batches(ROWS.drop("x"), 2)))
    with pytest.raises(InputError, match="input 'clicks': the column 'x' is Int32 in a batch, not Int64"):
        list(function(batches(ROWS.cast({"x": pl.Int32}), 2)))
    with pytest.raises(InputError, match="input 'clicks': the function was given a DataFrame, not an Arrow batch"):
        list(function(cast(Any, iter([ROWS]))))
    for odd in (None, pa.RecordBatch.from_pydict({"t": [1]}), pa.table({"t": [1]})):
        with pytest.raises(InputError, match=r"was given .*, not an iterator of Arrow batches"):
            list(function(cast(Any, odd)))


def test_wrong_queries_are_refused() -> None:
    clicks, ads = sq.from_frame(ROWS, start="t", name="clicks"), sq.from_frame({"ad": ["a"]}, name="ads")
    both = clicks.join(ads, on="ad")
    with pytest.raises(PlanError, match="as_arrow_function: the query has 2 inputs: 'clicks', 'ads'"):
        both.as_arrow_function()
    with pytest.raises(PlanError, match="there is no input called 'x'; the inputs are 'clicks', 'ads'"):
        both.as_arrow_function(input="x")
    with pytest.raises(PlanError, match="there are 2 inputs called 'clicks'"):
        clicks.union(sq.from_frame(ROWS, start="t", name="clicks")).as_arrow_function(input="clicks")
    with pytest.raises(PlanError, match="is a list of single events, not of rows"):
        sq.from_events([sq.point(1, x=1)]).as_arrow_function()
    with pytest.raises(PlanError, match="the input 'live' is pushed by the program"):
        clicks.union(sq.source(SCHEMA, start="t", name="live")).as_arrow_function(input="clicks")
    with pytest.raises(PlanError, match="a stream inside group_apply cannot be run by itself"):
        clicks.group_apply("ad", lambda g: cast(Any, g.as_arrow_function()))
