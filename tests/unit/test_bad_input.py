"""Bad input: each mistake raises its own error, as early as it can be known, with a text that helps.

The texts stand in `tests/golden/bad_input.txt`; ``SQUILL_UPDATE_GOLDEN=1`` writes them anew, to be reviewed as
code.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import SquillError
from squill.pushed import PushedSource
from squill.stream import Stream

GOLDEN = Path(__file__).parents[1] / "golden" / "bad_input.txt"
UPDATE = "SQUILL_UPDATE_GOLDEN"


def stream() -> Stream:
    return sq.from_frame({"t": [1, 2], "price": [3, 4], "customer": ["a", "b"]}, start="t")


def other() -> Stream:
    return sq.from_frame({"t": [1, 2], "customer": ["a", "b"], "rank": [1, 2]}, start="t")


def lists() -> Stream:
    return sq.from_frame({"t": [1], "l": [[1]]}, start="t")


def days() -> Stream:
    return sq.from_frame({"day": [dt.date(2020, 1, 1)], "price": [1]}, start="day")


def table() -> Stream:
    return sq.from_frame({"price": [1]})


def cluster() -> sq.Cluster:
    return sq.local(cores=1)


def sharded() -> sq.ShardedStream:
    return cluster().from_frame({"t": [1, 2], "price": [3, 4]}, start="t")


def tagged() -> str:
    """Write a table with a column of lists; return its path."""
    pl.DataFrame({"k": [1], "tags": [["a"]]}).write_parquet("tags.parquet")
    return "tags.parquet"


def sampled(columns: dict[str, list[Any]]) -> Stream:
    return sq.from_frame(columns, name="samples")


def two_tables() -> Stream:
    clicks = sq.from_frame({"u": [1, 2], "x": [1, 2]}, name="clicks")
    return clicks.join(sq.from_frame({"u": [1, 2], "name": ["a", "b"]}, name="users"), on="u")


def pushed(*rows: tuple[int, int]) -> PushedSource:
    """Return a connected source of (t, x) into which rows have been pushed."""
    source = sq.source({"t": pl.Int64, "x": pl.Int64}, start="t")
    source.subscribe(lambda frame: None)
    for t, x in rows:
        source.push({"t": t, "x": x})
    return source


def pushed_intervals() -> PushedSource:
    source = sq.source({"t": pl.Int64, "u": pl.Int64}, start="t", end="u")
    source.subscribe(lambda frame: None)
    return source


def completed() -> PushedSource:
    source = pushed()
    source.complete()
    return source


def ring(frame: pl.DataFrame) -> None:
    raise ConnectionError("the bell is broken")


def failing() -> None:
    """Push into a source whose subscriber raises."""
    source = sq.source({"t": pl.Int64, "x": pl.Int64}, start="t")
    source.subscribe(ring, emit="closed")
    source.push({"t": [1, 5], "x": [7, 8]})


def stopped() -> None:
    source = sq.source({"t": pl.Int64}, start="t")
    source.subscribe(print).stop()
    source.push({"t": 1})


def saved() -> tuple[PushedSource, str]:
    """Return a source as it is at first, and a checkpoint of a query over such a source."""
    source = sq.source({"t": pl.Int64}, start="t")
    subscription = source.subscribe(lambda frame: None)
    source.push({"t": 1})
    subscription.checkpoint("saved")
    return sq.source({"t": pl.Int64}, start="t"), "saved"


def restored_beside_a_running_one() -> None:
    source, folder = saved()
    source.subscribe(lambda frame: None)
    source.subscribe(lambda frame: None, restore=folder)


def restored_after_a_push() -> None:
    source, folder = saved()
    source.subscribe(lambda frame: None, restore=folder)
    source.push({"t": 2})
    source.subscribe(lambda frame: None, restore=folder)


def text(name: str, content: str) -> str:
    Path(name).write_text(content, encoding="utf-8")
    return name


def parquet(name: str = "a.parquet", **columns: list[Any]) -> str:
    columns = columns or {"x": [1]}
    pl.DataFrame({"t": list(range(len(next(iter(columns.values()))))), **columns}).write_parquet(name)
    return name


def ipc() -> str:
    pl.DataFrame({"t": [1]}).write_ipc("a.arrow")
    return "a.arrow"


def half(path: str) -> str:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    return path


def own(**attributes: Any) -> type:
    """Return an operator that lacks nothing but what the attributes take away."""
    complete = {
        "schema": {"n": pl.Int64},
        "on_instant": lambda self, t, starts: None,
        "save": lambda self: None,
        "load": lambda self, state: None,
    }
    return type("Own", (), {name: value for name, value in {**complete, **attributes}.items() if value is not None})


def broken(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("cost")


CASES: dict[str, Callable[[], object]] = {
    "wrong_column": lambda: stream().where(sq.col("prise") > 1),
    "wrong_column_far": lambda: stream().select("zzz"),
    "wrong_start_column": lambda: sq.from_frame({"time": [1]}, start="tim"),
    "wrong_group_key": lambda: stream().group_apply("custmer", lambda g: g.count()),
    "wrong_aggregate_input": lambda: stream().aggregate(n=sq.sum("pricee")),
    "not_row_wise_aggregate": lambda: stream().where(sq.col("price") > sq.col("price").mean()),
    "not_row_wise_shift": lambda: stream().select(d=sq.col("price") - sq.col("price").shift(1)),
    "not_row_wise_python": lambda: stream().select(d=sq.col("price").map_batches(abs, return_dtype=pl.Int64)),
    "not_boolean": lambda: stream().where(sq.col("price") + 1),
    "wrong_types": lambda: stream().select(x=sq.col("price") + sq.col("customer")),
    "sum_of_text": lambda: stream().aggregate(n=sq.sum("customer")),
    "start_is_text": lambda: sq.from_frame({"t": ["2020-01-01"]}, start="t"),
    "start_is_float": lambda: sq.from_frame({"t": [1.5]}, start="t"),
    "end_of_another_type": lambda: sq.from_frame({"t": [1], "u": [dt.date(2020, 1, 1)]}, start="t", end="u"),
    "end_without_start": lambda: sq.from_frame({"u": [1]}, end="u"),
    "unknown_lifetime": lambda: sq.from_frame({"t": [1]}, start="t", lifetime="closed"),
    "not_a_table": lambda: sq.from_frame(17, start="t"),
    "text_duration_on_integers": lambda: stream().with_duration("1h"),
    "integer_duration_on_dates": lambda: days().with_duration(7),
    "duration_finer_than_ticks": lambda: days().hopping_window("7d", "1h"),
    "duration_not_text": lambda: stream().tumbling_window(1.5),  # type: ignore[arg-type]
    "duration_misspelt": lambda: days().tumbling_window("7 days"),
    "different_time_types": lambda: stream().union(days().select(price=pl.lit(1, pl.Int64), customer=pl.lit("a"))),
    "zero_window": lambda: stream().tumbling_window(0),
    "negative_window": lambda: stream().hopping_window(-5, 1),
    "zero_hop": lambda: stream().hopping_window(10, 0),
    "zero_duration": lambda: stream().with_duration(0),
    "zero_session": lambda: stream().session_window(0),
    "zero_count_window": lambda: stream().count_window(0),
    "payload_called_start": lambda: sq.from_frame({"t": [1], "start": [2]}, start="t"),
    "payload_called_end": lambda: stream().select(end=sq.col("price")),
    "event_called_start": lambda: sq.from_events([sq.point(1, start=3)]),
    "start_time_of_relational_data": lambda: sq.from_frame({"x": [1]}).where(sq.start() > 1),
    "window_of_relational_data": lambda: sq.from_frame({"x": [1]}).tumbling_window(5),
    "end_not_known": lambda: sq.from_events([sq.start_edge(1, x=1)]).where(sq.end() > 3),
    "null_start": lambda: sq.from_frame({"t": [1, None], "x": [5, 6]}, start="t").collect(),
    "end_before_start": lambda: sq.from_frame({"t": [1, 4], "u": [2, 3]}, start="t", end="u").collect(),
    "start_at_infinity": lambda: sq.from_frame({"t": [2**63 - 1]}, start="t").collect(),
    "unsigned_beyond_int64": lambda: sq.from_frame({"t": pl.Series([2**63 + 5], dtype=pl.UInt64)}, start="t").collect(),
    "broken_sorted_by": lambda: sq.from_frame({"t": [3, 1]}, start="t", sorted_by="t").collect(),
    "broken_packed": lambda: sq.from_frame({"t": [1, 2, 3], "k": ["a", "b", "a"]}, start="t", packed="k").collect(),
    "broken_unique": lambda: sq.from_frame({"t": [1, 2], "k": ["a", "a"]}, start="t", unique="k").collect(),
    "broken_duration": lambda: sq.from_frame({"t": [1, 2], "u": [3, 5]}, start="t", end="u", duration=2).collect(),
    "promise_of_no_column": lambda: sq.from_frame({"t": [1]}, start="t", unique="tt"),
    "duration_promise_without_end": lambda: sq.from_frame({"t": [1]}, start="t", duration=2),
    "not_an_event": lambda: sq.from_events([{"t": 1}]),  # type: ignore[list-item]
    "events_of_other_columns": lambda: sq.from_events([sq.point(1, x=1), sq.point(2, y=1)]),
    "events_of_other_types": lambda: sq.from_events([sq.point(1, x=1)], schema={"x": pl.String}),
    "events_of_mixed_times": lambda: sq.from_events([sq.point(1, x=1), sq.point(dt.date(2020, 1, 1), x=1)]),
    "interval_backwards": lambda: sq.from_events([sq.interval(5, 3, x=1)]),
    "end_edge_backwards": lambda: sq.from_events([sq.end_edge(3, 5, x=1)]),
    "end_edge_at_its_start": lambda: sq.from_events([sq.end_edge(5, 5, x=1)]),
    "end_edge_of_nothing": lambda: sq.from_events([sq.point(1, x=1), sq.end_edge(5, 2, x=1)]).collect(),
    "late_event": lambda: sq.from_events([sq.point(9, x="a"), sq.point(4, x="b")]).collect(),
    "unknown_policy": lambda: sq.from_events([sq.point(1, x=1)], disorder="drop"),  # type: ignore[arg-type]
    "negative_wait": lambda: sq.from_events([sq.point(1, x=1)], disorder=sq.drop(wait=-1)),
    "text_wait_on_integers": lambda: sq.from_events([sq.point(1, x=1)], disorder=sq.drop(wait="1s")),
    "unsorted_push": lambda: pushed().push({"t": [9, 4], "x": [1, 2]}),
    "late_push": lambda: pushed((9, 1)).push({"t": 4, "x": 2}),
    "push_without_column": lambda: pushed().push({"t": 1}),
    "push_with_extra_column": lambda: pushed().push({"t": 1, "x": 2, "y": 3}),
    "push_of_wrong_type": lambda: pushed().push(pl.DataFrame({"t": [1], "x": ["a"]})),
    "push_of_wrong_value": lambda: pushed().push([{"t": 1, "x": "a"}]),
    "push_of_null_start": lambda: pushed().push({"t": [1, None], "x": [1, 2]}),
    "push_of_uneven_columns": lambda: pushed().push({"t": [1, 2], "x": [1]}),
    "push_of_no_rows_at_all": lambda: pushed().push(17),
    "push_of_odd_rows": lambda: pushed().push([1, 2]),
    "push_end_before_start": lambda: pushed_intervals().push({"t": 5, "u": 3}),
    "push_unconnected": lambda: sq.source({"t": pl.Int64}, start="t").push({"t": 1}),
    "push_after_complete": lambda: completed().push({"t": 1, "x": 2}),
    "complete_twice": lambda: completed().complete(),
    "punctuate_after_complete": lambda: completed().punctuate(5),
    "punctuate_wrong_type": lambda: pushed().punctuate("noon"),
    "subscribe_after_push": lambda: pushed((9, 1)).subscribe(print),
    "collect_pushed": lambda: sq.source({"t": pl.Int64}, start="t").collect(),
    "subscribe_stored": lambda: stream().subscribe(print),
    "subscribe_unknown_emit": lambda: sq.source({"t": pl.Int64}, start="t").subscribe(print, emit="all"),
    "subscribe_speculate_closed": lambda: sq.source({"t": pl.Int64}, start="t").subscribe(
        print, emit="closed", speculate=True
    ),
    "subscribe_odd_timer": lambda: sq.source({"t": pl.Int64}, start="t").subscribe(print, timer=1),  # type: ignore[arg-type]
    "subscriber_fails": failing,
    "push_after_stop": stopped,
    "restore_beside_a_running_query": restored_beside_a_running_one,
    "restore_twice_but_pushed_between": restored_after_a_push,
    "subscribe_time_column": lambda: sq.source({"t": pl.Int64, "time": pl.Int64}, start="t").subscribe(print),
    "source_without_start": lambda: sq.source({"t": pl.Int64}, start="tt"),
    "max_delay_without_unit": lambda: sq.source({"t": pl.Int64}, start="t", max_delay=5),
    "zero_punctuate_every": lambda: sq.source({"t": pl.Int64}, start="t", punctuate_every=0),
    "no_such_file": lambda: sq.scan("nowhere/*.parquet", start="t"),
    "no_path": lambda: sq.scan([], start="t"),
    "no_text_as_path": lambda: sq.scan(None, start="t"),  # type: ignore[arg-type]
    "no_text_among_paths": lambda: sq.scan([parquet(), 5], start="t"),  # type: ignore[list-item]
    "several_formats": lambda: sq.scan([parquet(), text("b.csv", "t,x\n1,2\n")], start="t"),
    "unknown_format": lambda: sq.scan(parquet(), start="t", format="xml"),
    "format_not_told": lambda: sq.scan(text("notes.txt", "a"), start="t"),
    "half_written_parquet": lambda: sq.scan(half(parquet()), start="t"),
    "half_written_ipc": lambda: sq.scan(half(ipc()), start="t"),
    "unreadable_parquet": lambda: sq.scan(text("bad.parquet", "t,x\n1,2\n"), start="t"),
    "half_written_ndjson": lambda: sq.scan(text("bad.ndjson", '{"t": 1}\n{"t"'), start="t").collect(),
    "empty_csv": lambda: sq.scan(text("empty.csv", ""), start="t"),
    "type_change": lambda: sq.scan([parquet(), parquet("b.parquet", x=["text"])], start="t"),
    "column_gone": lambda: sq.scan([parquet(), parquet("b.parquet", y=[1])], start="t"),
    "column_added": lambda: sq.scan([parquet(), parquet("b.parquet", x=[1], y=[1])], start="t"),
    "csv_type_change": lambda: sq.scan(
        [text("a.csv", "t,x\n1,2\n"), text("b.csv", "t,x\n1,two\n")], start="t"
    ).collect(),
    "csv_value_does_not_fit": lambda: sq.scan(text("a.csv", "t,x\n" + 200 * "1,2\n" + "1,two\n"), start="t").collect(),
    "file_not_in_promised_order": lambda: sq.scan(
        parquet("c.parquet", t=[5, 3], x=[1, 2]), start="t", sorted_by="t"
    ).collect(),
    "pushed_down_condition_fails": lambda: (
        sq.scan(parquet("b.parquet", x=["text"]), start="t").where(sq.col("x").cast(pl.Int64) > 1).collect()
    ),
    "point_at_the_end_of_time": lambda: sq.from_frame({"t": [2**63 - 2]}, start="t").collect(),
    "shift_beyond_time": lambda: sq.from_frame({"t": [2**62]}, start="t").shift(2**62).collect(),
    "duration_beyond_time": lambda: stream().with_duration(2**64),
    "result_beyond_its_type": lambda: (
        sq.from_frame({"t": pl.Series([120], dtype=pl.Int8)}, start="t").shift(10).collect()
    ),
    "sum_beyond_int64": lambda: sq.from_frame({"t": [1, 1], "x": [2**62, 2**62]}, start="t").sum("x").collect(),
    "to_parquet_nowhere": lambda: stream().to_parquet("nowhere/out.parquet"),
    "to_ipc_of_128_bits": lambda: stream().select(x=sq.col("price").cast(pl.Int128)).to_ipc("out.arrow"),
    "arrow_function_of_128_bits": lambda: sq.source({"t": pl.Int64, "x": pl.Int128}, start="t").as_arrow_function(),
    "collect_no_batch": lambda: stream().collect(batch_rows=0),
    "collect_half_a_batch": lambda: stream().collect(batch_rows=1.5),  # type: ignore[arg-type]
    "time_format_not_told": lambda: stream().select(d=sq.col("customer").str.to_date()),
    "expression_of_several_columns": lambda: (
        stream().select(s=pl.struct("price", "customer")).select(sq.col("s").struct.unnest())
    ),
    "drop_of_a_list": lambda: stream().drop(["price"]),  # type: ignore[arg-type]
    "rename_to_a_number": lambda: stream().rename({"price": 5}),  # type: ignore[dict-item]
    "map_schema_without_types": lambda: stream().map_batches(abs, schema=["price"]),  # type: ignore[arg-type]
    "key_that_hides_a_column": lambda: stream().group_apply(sq.col("price").alias("customer"), lambda g: g.count()),
    "key_without_a_name": lambda: stream().group_apply(5, lambda g: g.count()),
    "key_of_128_bits": lambda: stream().group_apply(None, lambda g: g.count(), k=sq.col("price").cast(pl.Int128)),
    "sum_of_128_bits": lambda: stream().aggregate(m=sq.sum(sq.col("price").cast(pl.Int128))),
    "aggregate_where_a_number": lambda: sq.count(where=5),  # type: ignore[arg-type]
    "aggregate_order_by_a_number": lambda: sq.first("price", order_by=5),  # type: ignore[arg-type]
    "negative_ddof": lambda: sq.var("price", ddof=-1),
    "descending_is_text": lambda: sq.top_k("price", 1, descending="no"),  # type: ignore[arg-type]
    "arithmetic_with_a_list": lambda: sq.count() * [1],
    "pipe_to_a_number": lambda: sq.count().pipe(lambda n: 5),  # type: ignore[arg-type, return-value]
    "type_without_its_arguments": lambda: stream().map_batches(abs, schema={"price": pl.List}),
    "type_of_python": lambda: sq.source({"t": int}, start="t"),
    "huge_count_window": lambda: stream().count_window(2**63),
    "union_of_times_beside_relational_data": lambda: sq.from_frame({"price": [1]}).union(
        stream().select("price"), days().select("price")
    ),
    "duration_from_minus_infinity": lambda: (
        stream().union(sq.from_frame({"price": [1], "customer": ["c"]})).with_duration(5).collect()
    ),
    "limit_from_minus_infinity": lambda: (
        stream().union(sq.from_frame({"price": [1], "customer": ["c"]})).clip(5).collect()
    ),
    "unsigned_duration_beyond_int64": lambda: stream().with_duration(pl.lit(2**63 + 1, dtype=pl.UInt64)).collect(),
    "duration_beyond_the_ticks": lambda: (
        sq.from_frame(
            {"t": pl.Series([0], dtype=pl.Datetime("ns")), "d": pl.Series([10**14], dtype=pl.Duration("ms"))}, start="t"
        )
        .with_duration(sq.col("d"))
        .collect()
    ),
    "cast_time_beyond_time": lambda: (
        sq.from_frame({"t": pl.Series([10**17], dtype=pl.Datetime("ms"))}, start="t").cast_time("ns").collect()
    ),
    "new_start_fails": lambda: (
        stream().alter_lifetime(start=sq.start().cast(pl.String).str.slice(5).cast(pl.Int64), duration=1).collect()
    ),
    "join_without_keys": lambda: stream().join(other()),
    "join_key_missing_left": lambda: stream().join(other(), left_on="custmer", right_on="customer"),
    "join_key_missing_right": lambda: stream().join(other(), on="price"),
    "join_key_types": lambda: stream().join(other(), left_on="price", right_on="customer"),
    "join_key_type_never": lambda: lists().join(lists(), on="l"),
    "join_key_computed": lambda: stream().join(other(), on=sq.col("customer").str.to_lowercase()),
    "join_key_counts": lambda: stream().join(other(), left_on=["price", "customer"], right_on=["customer"]),
    "join_both_ways_of_keys": lambda: stream().join(other(), on="customer", left_on="customer", right_on="customer"),
    "join_half_of_the_keys": lambda: stream().join(other(), left_on="customer"),
    "join_how": lambda: stream().join(other(), on="customer", how="outer"),
    "join_cross_with_keys": lambda: stream().join(other(), on="customer", how="cross"),
    "join_ambiguous": lambda: stream().with_columns(rank_right=1, rank=2).join(other(), on="customer"),
    "join_where_times": lambda: stream().join(other(), on="customer", where=sq.start() > 1),
    "join_where_column": lambda: stream().join(other(), on="customer", where=sq.col("rnak") > 1),
    "join_where_not_boolean": lambda: stream().join(other(), on="customer", where=sq.col("rank") + 1),
    "join_time_types": lambda: stream().join(days(), on="price"),
    "join_not_a_stream": lambda: stream().join(pl.DataFrame({"customer": ["a"]}), on="customer"),  # type: ignore[arg-type]
    "join_outside_the_group": lambda: stream().group_apply("customer", lambda g: g.join(other())),
    "join_time_name": lambda: stream().join(sq.from_frame({"customer": ["a"], "end": [1]}), on="customer"),
    "exists_without_keys": lambda: stream().where_exists(other()),
    "not_exists_without_keys": lambda: stream().where_not_exists(other()),
    "clip_keys_without_stream": lambda: stream().clip(5, on="customer"),
    "clip_by_relational": lambda: stream().clip(sq.from_frame({"customer": ["a"]}), on="customer"),
    "share_not_a_function": lambda: stream().share(other()),  # type: ignore[arg-type]
    "share_returns_no_stream": lambda: stream().share(lambda s: s.collect()),  # type: ignore[arg-type, return-value]
    "end_not_known_after_a_join": lambda: stream().join(other().session_window(5), on="customer").where(sq.end() > 5),
    "detect_no_pattern": lambda: stream().detect("price"),  # type: ignore[arg-type]
    "detect_relational": lambda: sq.from_frame({"x": [1]}).detect(sq.col("x") > 0),
    "detect_within_zero": lambda: stream().detect(sq.col("price") > 0, within=0),
    "detect_wrong_column": lambda: stream().detect(sq.pattern.star(sq.col("prise") > 0)),
    "detect_not_boolean": lambda: stream().detect(sq.pattern.one(sq.col("price") + 1)),
    "detect_overlap_is_text": lambda: stream().detect(sq.col("price") > 0, overlap="no"),  # type: ignore[arg-type]
    "detect_order_by_nothing": lambda: stream().detect(sq.col("price") > 0, order_by=[]),
    "pattern_of_nothing": sq.pattern.seq,
    "pattern_one_of_anything": sq.pattern.one,
    "pattern_none_of_anything": sq.pattern.none,
    "pattern_condition_is_text": lambda: sq.pattern.one("price"),  # type: ignore[arg-type]
    "pattern_register_without_value": lambda: stream().detect(sq.pattern.any(n=lambda n: n + 1)),
    "pattern_register_of_two_types": lambda: stream().detect(
        sq.pattern.alt(sq.pattern.any(a="price"), sq.pattern.any(a="customer"))
    ),
    "pattern_register_of_another_type": lambda: stream().detect(sq.pattern.any(a="customer").with_registers(a=0)),
    "pattern_register_too_narrow": lambda: stream().detect(
        sq.pattern.any(a=lambda a: a + 1).with_registers(a=pl.lit(0, pl.Int8))
    ),
    "pattern_register_without_type": lambda: stream().detect(sq.pattern.any().with_registers(a=None)),
    "pattern_register_not_constant": lambda: stream().detect(sq.pattern.any().with_registers(a=sq.col("price"))),
    "pattern_register_twice": lambda: sq.pattern.seq(
        sq.pattern.any().with_registers(a=0), sq.pattern.any().with_registers(a=1)
    ),
    "pattern_register_called_end": lambda: stream().detect(sq.pattern.any(end="price")),
    "pattern_register_called_as_a_key": lambda: stream().group_apply(
        "customer", lambda g: g.detect(sq.pattern.any(customer="price"))
    ),
    "pattern_parameter_unknown": lambda: stream().detect(sq.pattern.one(lambda prise: prise > 0)),
    "pattern_parameter_ambiguous": lambda: stream().detect(sq.pattern.one(lambda price: price > 0, price="price")),
    "pattern_parameter_starred": lambda: stream().detect(sq.pattern.one(lambda *prices: True)),
    "pattern_no_registers": lambda: sq.pattern.any().with_registers(),
    "followed_by_within_zero": lambda: stream().followed_by(sq.col("price") > 0, sq.col("price") > 0, 0),
    "followed_by_not_boolean": lambda: stream().followed_by("price", sq.col("price") > 0, 5),
    "consecutive_pairs_of_relational_data": lambda: sq.from_frame({"x": [1]}).consecutive_pairs(),
    "consecutive_pairs_name_taken": lambda: stream().with_columns(price_right=sq.col("price")).consecutive_pairs(),
    "sessionize_wrong_key": lambda: stream().sessionize(sq.col("price") > 0, sq.col("price") < 0, on="custmer"),
    "operator_is_an_object": lambda: stream().operator(own()()),
    "operator_on_relational_data": lambda: sq.from_frame({"x": [1]}).operator(own()),
    "operator_without_on_instant": lambda: stream().operator(own(on_instant=None)),
    "operator_with_another_on_instant": lambda: stream().operator(own(on_instant=lambda self, rows: None)),
    "operator_with_another_on_time": lambda: stream().operator(own(on_time=lambda self: None)),
    "operator_without_save": lambda: stream().operator(own(save=None)),
    "operator_without_load": lambda: stream().operator(own(load=None)),
    "operator_without_schema": lambda: stream().operator(own(schema=None)),
    "operator_without_columns": lambda: stream().operator(own(schema={})),
    "operator_with_an_odd_schema": lambda: stream().operator(own(schema=["n"])),
    "operator_with_an_odd_type": lambda: stream().operator(own(schema={"n": int})),
    "operator_with_an_odd_name": lambda: stream().operator(own(schema={1: pl.Int64})),
    "operator_with_a_time_column": lambda: stream().operator(own(schema={"end": pl.Int64})),
    "operator_of_unknown_lifetime": lambda: stream().operator(own(lifetime="long")),
    "operator_whose_alive_is_a_method": lambda: stream().operator(own(alive=lambda self: True)),
    "operator_argument_unknown": lambda: stream().operator(own(), alpha=0.1),
    "operator_shared_by_all_keys": lambda: stream().operator(partial(getattr, own(), "schema")),
    "operator_event_without_start": lambda: (
        stream().union(sq.from_frame({"price": [1], "customer": ["c"]})).operator(own()).collect()
    ),
    "snapshot_apply_of_no_function": lambda: stream().snapshot_apply("price"),  # type: ignore[arg-type]
    "snapshot_apply_fails_on_no_rows": lambda: stream().snapshot_apply(broken),
    "snapshot_apply_gives_no_frame": lambda: stream().snapshot_apply(len),
    "snapshot_apply_with_an_odd_schema": lambda: stream().snapshot_apply(broken, schema="n"),  # type: ignore[arg-type]
    "bootstrap_of_a_number": lambda: cluster().stream(pushed()).query(lambda s: s).start(print, bootstrap=5),
    "bootstrap_of_an_unknown_dataset": lambda: (
        cluster().stream(pushed()).query(lambda s: s).start(print, bootstrap="no-such-dataset")
    ),
    "keep_state_without_times": lambda: cluster().from_frame({"x": [1]}).to_storage("out", keep_state=True),
    "keep_state_of_pushed_rows": lambda: cluster().stream(pushed()).to_storage("out", keep_state=True),
    "refresh_of_rows_with_times": lambda: cluster().scan(tagged(), start="k", refresh="1m"),
    "refresh_of_lists": lambda: cluster().scan(tagged(), refresh="1m"),
    "refresh_without_a_unit": lambda: cluster().scan(tagged(), refresh=5),
    "keep_state_of_text": lambda: cluster().from_frame({"x": [1]}).to_storage("out", keep_state="yes"),  # type: ignore[arg-type]
    "asof_join_negative_tolerance": lambda: stream().asof_join(stream(), on="customer", tolerance=-1),
    "asof_join_tolerance_with_a_unit": lambda: stream().asof_join(stream(), on="customer", tolerance="5m"),
    "asof_join_tolerance_without_a_unit": lambda: days().asof_join(days(), on="price", tolerance=3),
    "asof_join_tolerance_finer_than_ticks": lambda: days().asof_join(days(), on="price", tolerance="36h"),
    "asof_join_tolerance_beyond_time": lambda: stream().asof_join(stream(), tolerance=2**63),
    "asof_join_relational_left": lambda: table().asof_join(stream(), on="price"),
    "asof_join_relational_right": lambda: stream().asof_join(table(), on="price"),
    "asof_join_unknown_order": lambda: stream().asof_join(stream(), on="customer", order_by="prise"),
    "asof_join_order_by_end_of_edges": lambda: stream().asof_join(
        stream().session_window(5), on="customer", order_by=sq.end()
    ),
    "asof_join_how_full": lambda: stream().asof_join(stream(), on="customer", how="full"),
    "asof_join_unknown_key": lambda: stream().asof_join(stream(), on="costumer"),
    "asof_join_key_types": lambda: stream().asof_join(stream(), left_on="price", right_on="customer"),
    "asof_join_different_times": lambda: stream().asof_join(days(), on="price"),
    "asof_join_with_a_frame": lambda: stream().asof_join(pl.DataFrame({"price": [1]}), on="price"),  # type: ignore[arg-type]
    "progress_no_rows": lambda: sq.progress.rows(0),
    "progress_no_steps": lambda: sq.progress.hashed("customer", steps=0),
    "progress_no_fractions": lambda: sq.progress.fractions(0),
    "progress_shrinking_ratio": lambda: sq.progress.exponential(10, 0.5),
    "progress_no_columns": lambda: sq.progress.hashed([], steps=3),
    "progress_a_column_twice": lambda: sq.progress.stratified(["customer", "customer"], 2),
    "progress_points_in_several_columns": lambda: sq.progress.columns(["p", "q"]),  # type: ignore[arg-type]
    "progress_start_is_end": lambda: sq.progress.columns("p", "p"),
    "progress_trust_of_another_kind": lambda: sq.progress.hashed("customer", 2, trust="yes"),  # type: ignore[arg-type]
    "progress_strata_of_nothing": lambda: sq.progress.stratified("customer", 0),
    "progressive_no_assignment": lambda: table().progressive(3),  # type: ignore[arg-type]
    "progressive_coarsen": lambda: table().progressive(sq.progress.rows(1), coarsen=0),
    "progressive_until": lambda: table().progressive(sq.progress.rows(1), until="soon"),  # type: ignore[arg-type]
    "progressive_wrong_column": lambda: table().progressive(sq.progress.hashed("prise", 3)),
    "progressive_text_points": lambda: sampled({"p": ["a"]}).progressive(sq.progress.columns("p")),
    "progressive_null_point": lambda: sampled({"p": [1, None]}).progressive(sq.progress.columns("p")),
    "progressive_negative_point": lambda: sampled({"p": [0, -1]}).progressive(sq.progress.columns("p")),
    "progressive_ends_before": lambda: sampled({"p": [0, 5], "q": [1, 4]}).progressive(sq.progress.columns("p", "q")),
    "progressive_negative_end": lambda: sampled({"p": [0], "q": [-1]}).progressive(sq.progress.columns("p", "q")),
    "progressive_too_late": lambda: sampled({"p": [2**63 - 1]}).progressive(sq.progress.columns("p")),
    "progressive_fractional_steps": lambda: sq.progress.hashed("customer", steps=2.5),  # type: ignore[arg-type]
    "progressive_hash_of_lists": lambda: sampled({"l": [[1]]}).progressive(sq.progress.hashed("l", 3)),
    "progressive_one_input_without_the_column": lambda: two_tables().progressive(sq.progress.hashed("x", 3)),
    "storage_progress_of_another_kind": lambda: cluster().from_frame({"x": [1]}).to_storage("d", progress=3),  # type: ignore[arg-type]
    "storage_progress_wrong_column": lambda: (
        cluster().from_frame({"user": [1]}).to_storage("d", progress=sq.progress.hashed("usr", 3))
    ),
    "storage_progress_as_ipc": lambda: (
        cluster().from_frame({"x": [1]}).to_storage("d", format="ipc", progress=sq.progress.rows(3))
    ),
    "storage_progress_with_state": lambda: (
        cluster().from_frame({"x": [1]}).to_storage("d", keep_state=True, progress=sq.progress.rows(3))
    ),
    "storage_progress_strata_apart": lambda: (
        sq.local(cores=2).from_frame({"x": [1]}).to_storage("d", progress=sq.progress.stratified("x", 3))
    ),
    "storage_progress_column_taken": lambda: (
        cluster().from_frame({"__squill_step__": [1]}).to_storage("d", progress=sq.progress.rows(3))
    ),
    "progressive_missing_input": lambda: two_tables().progressive({"clicks": sq.progress.rows(1)}),
    "progressive_unknown_input": lambda: two_tables().progressive(
        {"clicks": sq.progress.rows(1), "user": sq.progress.rows(1)}
    ),
    "progressive_input_of_no_assignment": lambda: two_tables().progressive({"clicks": 3, "users": 4}),  # type: ignore[dict-item]
    "progressive_unequal_hash_columns": lambda: two_tables().progressive(
        {"clicks": sq.progress.hashed(["u", "x"], 3), "users": sq.progress.hashed("u", 3)}
    ),
    "progressive_unequal_hash_types": lambda: two_tables().progressive(
        {"clicks": sq.progress.hashed("u", 3), "users": sq.progress.hashed("name", 3)}
    ),
    "progressive_unequal_hash_steps": lambda: two_tables().progressive(
        {"clicks": sq.progress.hashed("u", 3), "users": sq.progress.hashed("u", 4)}
    ),
    "progress_together_by_no_columns": lambda: sq.progress.columns("p", together=[]),
    "progress_together_beside_an_end": lambda: sq.progress.columns("p", "q", together="u"),
    "progressive_together_by_a_wrong_column": lambda: sampled({"p": [1], "u": [1]}).progressive(
        sq.progress.columns("p", together="v")
    ),
    "progressive_together_by_lists": lambda: sampled({"p": [1], "u": [[1]]}).progressive(
        sq.progress.columns("p", together="u")
    ),
    "progressive_together_by_other_types": lambda: two_tables().progressive(
        {"clicks": sq.progress.hashed("u", 3, together="x"), "users": sq.progress.hashed("u", 3, together="name")}
    ),
    "progressive_not_together": lambda: next(
        sampled({"p": [1, 2], "u": [5, 5]}).distinct().progressive(sq.progress.columns("p", together="u"))
    ),
    "progressive_over_time_by_rows": lambda: stream().progressive(sq.progress.rows(1)),
    "progressive_over_time_ungrouped": lambda: stream().count().progressive(sq.progress.hashed("customer", 3)),
    "progressive_pushed": lambda: sq.source({"t": pl.Int64}, start="t").progressive(sq.progress.rows(1)),
    "progressive_interval_of_rows": lambda: (
        sampled({"p": [1]}).aggregate(m=sq.ci.mean("p")).progressive(sq.progress.rows(1))
    ),
    "progressive_interval_of_a_lost_hash": lambda: (
        sampled({"u": [1], "p": [1]}).select("p").aggregate(m=sq.ci.mean("p")).progressive(sq.progress.hashed("u", 3))
    ),
    "progressive_interval_of_groups": lambda: (
        sampled({"u": [1], "p": [1]})
        .group_aggregate("p", n=sq.count())
        .aggregate(m=sq.ci.mean("n"))
        .progressive(sq.progress.hashed("u", 3))
    ),
    "interval_level": lambda: sq.ci.mean("price", level=95),
    "interval_uniform": lambda: sq.ci.mean("price", uniform="yes"),  # type: ignore[arg-type]
    "interval_share": lambda: sq.ci.quantile("price", 1),
    "interval_arithmetic": lambda: sq.ci.mean("price") * 2,
    "interval_of_text": lambda: stream().aggregate(m=sq.ci.mean("customer")),
    "interval_of_durations": lambda: sampled({"took": [dt.timedelta(seconds=1)]}).aggregate(m=sq.ci.sum("took")),
    "progress_too_many_rows": lambda: sq.progress.rows(2**63),
    "progress_too_many_fractions": lambda: sq.progress.fractions(2**31),
    "progress_too_many_steps": lambda: sq.progress.hashed("customer", 2**31),
    "progress_ratio_beyond_floats": lambda: sq.progress.exponential(1, 10**400),
    "progressive_until_beyond_floats": lambda: table().progressive(sq.progress.rows(1), until=10**400),
    "progressive_until_says_neither": lambda: list(
        table().progressive(sq.progress.rows(1), until=lambda early: pl.Series([True, False]))
    ),
    "progressive_level_too_high": lambda: sq.ci.mean("price", level=0.9999999999999999),
    "local_too_many_threads": lambda: sq.local(cores=1000, machines=5),
    "progressive_coarsen_too_much": lambda: table().progressive(sq.progress.rows(1), coarsen=2**63),
    "progressive_row_of_other_types": lambda: next(table().progressive(sq.progress.rows(1))).provenance({"price": "x"}),
    "progressive_row_of_no_names": lambda: next(table().progressive(sq.progress.rows(1))).provenance({1: 2}),  # type: ignore[dict-item]
    "progressive_no_such_row": lambda: next(table().progressive(sq.progress.rows(1))).provenance({"price": 7}),
    "progressive_changes_named_diff": lambda: (
        next(sq.from_frame({"diff": [1]}).progressive(sq.progress.rows(1))).changes
    ),
    "progressive_over_events": lambda: sq.from_events([sq.point(1, x=1)]).progressive(sq.progress.rows(1)),
    "resume_of_a_number": lambda: sq.resume(3),  # type: ignore[arg-type]
    "resume_in_a_number": lambda: sq.resume("x", folder=3),  # type: ignore[arg-type]
    "show_on_a_number": lambda: table().progressive(sq.progress.rows(1)).show(console=3),  # type: ignore[arg-type]
    "union_with_a_frame": lambda: stream().union(pl.DataFrame({"x": range(99)})),  # type: ignore[arg-type]
    "shards_united_with_a_frame": lambda: sharded().union(pl.DataFrame({"x": range(99)})),  # type: ignore[arg-type]
    "query_over_a_frame": lambda: sharded().query(pl.DataFrame({"x": range(99)}), print),  # type: ignore[call-overload]
    "frame_as_a_sink": lambda: cluster().stream(pushed()).query(lambda s: s).start(pl.DataFrame({"x": range(99)})),
    "where_a_list_of_a_thousand": lambda: stream().where(list(range(1000))),  # type: ignore[arg-type]
    "shortcut_of_an_expression": lambda: stream().sum(sq.col("price")),  # type: ignore[arg-type]
    "group_apply_of_two_arguments": lambda: stream().group_apply("customer", lambda key, g: g.count()),  # type: ignore[arg-type, misc]
    "share_of_no_argument": lambda: stream().share(stream),  # type: ignore[arg-type]
    "key_named_by_a_number": lambda: stream().group_aggregate({1: sq.col("price")}, n=sq.count()),
    "how_is_an_expression": lambda: stream().join(other(), on="customer", how=sq.col("left")),  # type: ignore[arg-type]
    "scope_is_a_table": lambda: sharded().rekey("price").redistribute(scope=pl.DataFrame({"x": range(99)})),  # type: ignore[arg-type]
    "mode_is_a_list": lambda: sharded().to_storage("out", mode=["overwrite"]),  # type: ignore[arg-type]
    "format_is_a_list": lambda: sharded().to_storage("out", format=["ipc"]),  # type: ignore[arg-type]
    "multicast_to_a_list": lambda: sharded().multicast([0, 1]),  # type: ignore[arg-type]
    "sort_by_a_column": lambda: stream().collect(sort="price"),  # type: ignore[arg-type]
    "shards_sorted_by_a_column": lambda: sharded().collect(sort="price"),  # type: ignore[arg-type]
    "keep_time_is_a_column": lambda: sq.from_frame({"t": [1]}, start="t", keep_time="t"),  # type: ignore[arg-type]
    "trust_is_text": lambda: sq.from_frame({"t": [1]}, start="t", sorted_by="t", trust="yes"),  # type: ignore[arg-type]
    "sorted_by_true": lambda: sq.from_frame({"t": [1]}, start="t", sorted_by=True),  # type: ignore[arg-type]
    "packed_by_a_number": lambda: cluster().from_frame({"t": [1]}, start="t", packed=[0]),  # type: ignore[list-item]
    "input_called_by_a_number": lambda: sq.from_frame({"t": [1]}, start="t", name=7),  # type: ignore[arg-type]
    "catalog_is_a_number": lambda: sq.local(cores=1, catalog=7),  # type: ignore[arg-type]
    "no_events": lambda: sq.from_events(None),  # type: ignore[arg-type]
    "events_of_columns_without_names": lambda: sq.from_events([], schema={1: pl.Int64}),  # type: ignore[dict-item]
    "where_is_a_list": lambda: stream().aggregate(n=sq.count(where=["price"])),  # type: ignore[arg-type]
    "top_k_beyond_64_bits": lambda: sq.top_k("price", 2**63),
    "arrow_function_over_a_number": lambda: stream().as_arrow_function(7),  # type: ignore[arg-type]
    "bytes_as_path": lambda: sq.scan(b"a.parquet", start="t"),  # type: ignore[arg-type]
    "shards_subscriber_fails": lambda: sharded().subscribe(ring),
}


def raised(name: str) -> str:
    with pytest.raises(SquillError) as caught:
        CASES[name]()
    return f"{type(caught.value).__name__}: {caught.value}"


def golden() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split("== ")[1:]
    return dict(section.strip().split("\n", 1) for section in sections)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_says_what_is_wrong(name: str) -> None:
    found = raised(name)
    if UPDATE in os.environ:
        texts = {**golden(), name: found}
        listed = [f"== {case}\n{texts[case]}\n" for case in CASES if case in texts]
        GOLDEN.write_text("\n".join(listed), encoding="utf-8")
    assert found == golden()[name]


def test_every_text_has_its_case() -> None:
    assert list(golden()) == list(CASES)
