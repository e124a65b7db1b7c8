from __future__ import annotations

import datetime as dt
from dataclasses import replace

import polars as pl
import pytest

import squill as sq
from squill.engine.ingress import RowReader, frame_batches
from squill.errors import InputError
from squill.plan.nodes import FrameSource, Where
from squill.time import INFINITY


def source(frame: pl.DataFrame, **arguments: object) -> FrameSource:
    node = sq.from_frame(frame, **arguments).plan  # type: ignore[arg-type]
    assert isinstance(node, FrameSource)
    return node


def test_rows_come_out_in_time_order_whatever_the_order_of_the_frame() -> None:
    frame = pl.DataFrame({"t": [3, 1, 2], "x": ["c", "a", "b"]})
    batches = [item.batch for item in frame_batches(source(frame, start="t"), 2)]
    assert [batch.columns["x"].to_list() for batch in batches if batch is not None] == [["a", "b"], ["c"]]


def test_empty_lifetimes_are_dropped_and_counted() -> None:
    frame = pl.DataFrame({"t": [1, 2, 3], "u": [1, 5, None]})
    reader = RowReader(source(frame, start="t", end="u"))
    batch = reader.read({name: frame[name] for name in frame.columns}, 3)
    assert batch.sync.tolist() == [2, 3]
    assert batch.other.tolist() == [5, INFINITY]
    assert reader.empty == 1


def test_start_and_end_may_be_expressions() -> None:
    stream = sq.from_frame({"a": [10], "n": [3]}, start=sq.col("a") * 2, end=sq.col("a") * 2 + sq.col("n"))
    assert stream.collect().rows() == [(20, 23, 10, 3)]


@pytest.mark.parametrize("rows", [[], [3], [3, 1, 2]])
def test_start_and_end_may_be_constants(rows: list[int]) -> None:
    frame = pl.DataFrame({"t": rows}, schema={"t": pl.Int64})
    one_end = sq.from_frame(frame, start="t", end=pl.lit(10)).collect()
    assert one_end.rows() == [(start, 10) for start in sorted(rows)]
    no_end = sq.from_frame(frame, start=sq.col("t"), end=pl.lit(None)).collect()
    assert no_end.rows() == [(start, None) for start in sorted(rows)]
    assert sq.from_frame(frame, start=pl.lit(7)).collect().rows() == [(7, 8, row) for row in rows]


@pytest.mark.parametrize("shards", [1, 2])
def test_a_time_that_cannot_be_computed_is_an_error_that_names_the_input(shards: int) -> None:
    frame = pl.DataFrame({"t": ["5", "oops", "7"]})
    with sq.local(shards) as cluster:
        stream = cluster.from_frame(frame, start=sq.col("t").cast(pl.Int64), name="clicks")
        with pytest.raises(InputError, match="oops") as raised:
            stream.collect()
    assert "input 'clicks': the time t=" in str(raised.value)
    assert "Hint: check the values" in str(raised.value)


def test_an_error_numbers_rows_over_all_pieces() -> None:
    frame = pl.DataFrame({"t": [1, None]}, schema={"t": pl.Int64})
    reader = RowReader(source(frame, start="t"))
    reader.first_row = 100
    with pytest.raises(InputError, match="is null in row 101"):
        reader.read({"t": frame["t"]}, 2)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pl.Int32(), 7),
        (pl.UInt8(), 7),
        (pl.Date(), dt.date(1969, 12, 30)),
        (pl.Datetime("ms"), dt.datetime(1960, 1, 1)),
        (pl.Datetime("ns", "Europe/Paris"), dt.datetime(2020, 7, 1)),
    ],
)
def test_results_are_typed_as_the_input_was(dtype: pl.DataType, value: object) -> None:
    naive = pl.Datetime(dtype.time_unit) if isinstance(dtype, pl.Datetime) else dtype
    times = pl.Series("t", [value], naive)
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        times = times.dt.replace_time_zone(dtype.time_zone)
    answer = sq.from_frame(pl.DataFrame([times]), start="t").collect()
    assert answer.schema == {"start": dtype, "end": dtype}
    assert answer["start"].equals(times.alias("start"))


def test_relational_rows_have_no_times() -> None:
    assert sq.from_frame({"x": [2, 1]}).collect().to_dict(as_series=False) == {"x": [2, 1]}


def test_keep_time_keeps_a_copy_of_the_time_columns() -> None:
    assert sq.from_frame({"t": [1], "u": [4]}, start="t", end="u", keep_time=True).collect().rows() == [(1, 4, 1, 4)]


def filtered(times: list[int | None], keep: list[bool], dtype: pl.DataType | None = None) -> pl.DataFrame:
    frame = pl.DataFrame({"t": pl.Series(times, dtype=dtype or pl.Int64()), "keep": keep})
    return sq.from_frame(frame, start="t").where("keep").collect()


def test_a_filter_before_the_sort_leaves_the_order_of_equal_times() -> None:
    frame = pl.DataFrame({"t": [2, 1, 2, 1, 1], "x": [0, 1, 2, 3, 4]})
    answer = sq.from_frame(frame, start="t").where(sq.col("x") != 3).collect()
    assert answer.rows() == [(1, 2, 1), (1, 2, 4), (2, 3, 0), (2, 3, 2)]


def test_a_null_time_is_refused_even_where_the_filter_drops_it() -> None:
    with pytest.raises(InputError, match="is null in row 1"):
        filtered([1, None], [True, False])


def test_a_time_out_of_range_is_named_by_its_row_in_the_frame() -> None:
    with pytest.raises(InputError, match="'t' in row 2 is outside"):
        filtered([1, 2, INFINITY], [False, True, True])
    with pytest.raises(InputError, match="'t' in row 1 is outside"):
        filtered([1, 2**63, 3], [False, True, True], pl.UInt64())


def test_the_time_of_a_row_that_is_filtered_out_may_be_any() -> None:
    assert filtered([1, INFINITY, 3], [True, False, True])["start"].to_list() == [1, 3]


def test_a_frame_that_has_a_filter_gives_what_it_keeps_with_times_or_without() -> None:
    frame = pl.DataFrame({"t": [1, 2, 3], "e": [9, 9, 9], "x": [7, 8, 7]})
    kept = sq.from_frame(frame).where(sq.col("x") == 7).plan
    assert isinstance(kept, Where)
    for arguments in ({}, {"start": "t"}, {"start": "t", "end": "e"}):
        filtered_frame = replace(source(frame, **arguments), predicate=kept.predicate)
        batches = [arrival.batch for arrival in frame_batches(filtered_frame, 10)]
        assert [batch.columns["x"].to_list() for batch in batches if batch is not None] == [[7, 7]], arguments


def test_promises_are_checked_on_the_rows_that_a_filter_drops_too() -> None:
    stream = sq.from_frame({"t": [1, 2, 3], "k": ["a", "b", "a"]}, start="t", unique="k")
    with pytest.raises(InputError, match="row 2 repeats a key"):
        stream.where(sq.col("k") == "b").collect()
