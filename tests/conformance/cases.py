"""The worked cases as Squill queries.

`cases.json` holds inputs and answers read off another engine's tests; `QUERIES` says in Squill what each
case asks. A payload that is a single value is the column `x`, a list is `x0`, `x1`, …, an object is its
fields; a case's `partition` is the column `partition`. Windows of these cases are (w − size, w].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

import squill as sq
from squill.plan.events import EndEdge, Event, Punctuation
from squill.plan.nodes import Disorder
from squill.plan.pattern import Pattern
from squill.stream import Stream
from squill.testing import Row
from squill.time import INFINITY

p = sq.pattern

CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
}


def columns_of(value: Any, partition: Any = None) -> dict[str, Any]:
    """Return a case's payload as named columns."""
    if isinstance(value, dict):
        columns = dict(value)
    elif isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        columns = {f"x{place}": item for place, item in enumerate(value)}
    elif isinstance(value, list):
        columns = {"x": [{name.replace("payload", "x"): field for name, field in item.items()} for item in value]}
    else:
        columns = {"x": value}
    return columns if partition is None else {"partition": partition, **columns}


def event_of(event: Mapping[str, Any]) -> Event:
    start, kind = event["start"], event["kind"]
    if kind in ("punctuation", "low_watermark"):
        # With a single partition a watermark for all of them is a punctuation.
        return sq.punctuation(start)
    payload = columns_of(event["payload"], event.get("partition"))
    if kind == "point":
        return sq.point(start, **payload)
    if kind == "start_edge":
        return sq.start_edge(start, **payload)
    if kind == "end_edge":
        return sq.end_edge(event["end"], start, **payload)
    return sq.interval(start, event["end"], **payload)


def sync_of(event: Event) -> int:
    if isinstance(event, Punctuation):
        return INFINITY if event.time is None else int(event.time)
    return int(event.end if isinstance(event, EndEdge) else event.start)


@dataclass(frozen=True)
class Query:
    """What a case asks, and how its input is read.

    `disorder` marks an ingress case: its events arrive as they are listed. Elsewhere they are sorted by sync
    first, since a listing may group the events it talks about.
    """

    ask: Callable[..., Stream]
    disorder: Disorder | None = None
    schema: Mapping[str, Any] | None = None
    convert: Callable[[Any], Any] = lambda value: value

    def stream(self, case: Mapping[str, Any]) -> Stream:
        return self.ask(*(self.read(events) for events in case["input"].values()))

    def read(self, listed: list[dict[str, Any]]) -> Stream:
        events = [event_of({**event, "payload": self.convert(event.get("payload"))}) for event in listed]
        if self.disorder is None:
            events.sort(key=sync_of)
        return sq.from_events(events, disorder=self.disorder, schema=self.schema)

    def expected(self, case: Mapping[str, Any]) -> list[Row]:
        names = self.stream(case).schema.names
        rows = []
        for event in case["expected_lifetimes"]:
            columns = columns_of(self.convert(event["payload"]), event.get("partition"))
            end = INFINITY if event["end"] is None else event["end"]
            rows.append(Row(event["start"], end, {name: columns[name] for name in names}))
        return rows


def unchanged(s: Stream) -> Stream:
    return s


def session_sum(timeout: int, max_duration: int | None = None) -> Callable[[Stream], Stream]:
    return lambda s: s.session_window(timeout, max_duration).aggregate(x=sq.sum("field1"))


def grouped_sum(s: Stream) -> Stream:
    return s.group_apply("field2", lambda g: g.aggregate(field1=sq.sum("field1")))


def session_grouped(timeout: int) -> Callable[[Stream], Stream]:
    return lambda s: s.group_apply("field2", lambda g: g.session_window(timeout).aggregate(field1=sq.sum("field1")))


def hopping(s: Stream) -> Stream:
    return s.hopping_window(20, 10, closed="right")


def tumbling(s: Stream) -> Stream:
    return s.hopping_window(10, 10, closed="right")


def per_partition(fn: Callable[[Stream], Stream]) -> Callable[[Stream], Stream]:
    return lambda s: s.group_apply("partition", fn)


def counted_by_hundreds(s: Stream) -> Stream:
    counted = s.group_apply(lambda g: g.aggregate(n=sq.count()), key=sq.col("x") // 100)
    return counted.select(x=sq.col("key") * 100 + sq.col("n") * 10)


def time_by_process(s: Stream) -> Stream:
    grouped = s.group_apply(
        ["CpuId", "ProcessId", "Name"],
        lambda g: g.hopping_window(3600, 3600, closed="right").aggregate(TotalTime=sq.sum("Timeslice")),
    )
    return grouped.select("CpuId", "Name", "TotalTime")


def filtered_counts(s: Stream) -> Stream:
    above = sq.count(where=sq.col("x") >= 30)
    between = sq.count(where=(sq.col("x") >= 30) & (sq.col("x") <= 40))
    return s.aggregate(x=sq.count() * 100 + above * 10 + between)


def union(left: Stream, right: Stream) -> Stream:
    return left.union(right)


def decimal(value: Any) -> Any:
    return None if value is None else Decimal(str(value))


def by_first_character(s: Stream) -> Stream:
    return s.with_columns(k=sq.col("x").str.slice(0, 1))


def join_by_first_character(left: Stream, right: Stream) -> Stream:
    joined = by_first_character(left).join(by_first_character(right), on="k")
    return joined.select(x=sq.col("x") + "," + sq.col("x_right"))


def left_outer_join(left: Stream, right: Stream) -> Stream:
    joined = left.join(right, left_on="field1", right_on="field3", where=sq.col("field2") != "E", how="left")
    return joined.with_columns(sq.col("field3").fill_null(-1), sq.col("field4").fill_null("null"))


def timeslices(s: Stream) -> Stream:
    """Each event with the time to the next one of its core."""
    waiting = s.with_duration(None)
    joined = waiting.clip(waiting, on="CpuId").shift(1).join(s, on="CpuId")
    return joined.select("ProcessId", "CpuId", "Name", Timeslice=sq.col("Tick_right") - sq.col("Tick"))


def chopped_switches(s: Stream, bounds: Stream) -> Stream:
    waiting = s.with_duration(None)
    bounded = waiting.clip(waiting, on="CpuId").join(bounds.select(bound=1), how="cross").drop("bound")
    return bounded.chop(3600).with_columns(Tick=sq.start()).with_duration(1)


def top_process(s: Stream, names: Stream, bounds: Stream) -> Stream:
    switches = chopped_switches(s.where(sq.col("CpuId").is_in([1, 2])), bounds)
    times = timeslices(switches.join(names, on="ProcessId")).group_apply(
        ["ProcessId", "Name"],
        lambda g: g.hopping_window(3600, 3600, closed="right").aggregate(TotalTime=sq.sum("Timeslice")),
    )
    top = times.aggregate(top=sq.top_k("TotalTime", 1)).select_many("top")
    return top.select(
        PeriodStart=sq.start() - 3600,
        PeriodEnd=sq.start(),
        ProcessName=sq.col("top").struct.field("Name"),
        TotalCpuConsumed=sq.col("top").struct.field("TotalTime"),
    )


def spelled(*letters: str) -> Iterator[Pattern]:
    """Return elements that take these payloads and append them to the register `text`."""
    column = "x0" if len(letters) == 2 else "x"  # the one case of pairs looks for two letters
    append = (lambda text, x0: text + x0) if column == "x0" else (lambda text, x: text + x)
    return (p.one(sq.col(column) == letter, text=append) for letter in letters)


def spelling(s: Stream, pattern: Pattern, **options: Any) -> Stream:
    return s.detect(pattern.with_registers(text=""), **options).rename({"text": "x"})


def order_then_food(s: Stream) -> Stream:
    o, a, f = spelled("O", "A", "F")
    return spelling(s, p.seq(o, p.opt(p.star(a), f)), within=10, overlap=False)


def a_then_c_or_bb(s: Stream) -> Stream:
    a, b, c = spelled("A", "B", "C")
    return spelling(s, p.seq(a, p.alt(p.opt(c), p.seq(b, b))), within=3, overlap=False)


def a_then_b_in_order(s: Stream) -> Stream:
    a, b, _ = spelled("A", "B", "C")
    return spelling(s, p.seq(a, b), within=2, order_by="x")


def ab_plus(within: int) -> Callable[[Stream], Stream]:
    a, b, _ = spelled("A", "B", "C")
    return per_partition(lambda g: spelling(g, p.seq(a, p.plus(b)), within=within))


def a_plus_b_plus(s: Stream) -> Stream:
    a, b = spelled("A", "B")
    pattern = p.seq(p.plus(a), p.plus(b)).with_registers(text="")
    return s.group_apply("x1", lambda g: g.detect(pattern, within=7)).select("x1", x0="text")


def a_then_maybe_b(s: Stream) -> Stream:
    a, b = (p.one(sq.col("x") == x, n=lambda n, x: n * 10 + x) for x in (1, 2))
    return s.detect(p.seq(a, p.opt(b)).with_registers(n=0), overlap=False).rename({"n": "x"})


def sum_of_bs(s: Stream) -> Stream:
    a, b, c = (sq.col("Field1") == letter for letter in "ABC")
    add = p.one(b, x=lambda x, value: x + value)
    return s.rename({"Field2": "value"}).detect(p.seq(a, p.star(add), c).with_registers(x=0), within=1000)


def zero_until_one(column: str, within: int, first: Callable[..., Pattern]) -> Callable[[Stream], Stream]:
    """Return a match of instants: one with a 0 (or a single 0), then any without a 1, then one with a 1."""
    zero, one = sq.col(column) == 0, sq.col(column) == 1
    return lambda s: s.detect(p.seq(first(zero), p.star(p.none(one)), p.any(one)), within=within, overlap=False)


QUERIES: dict[str, Query] = {
    "afa_list_struct": Query(zero_until_one("Field2", 1000, p.any)),
    "afa_mixed_arcs": Query(zero_until_one("x", 10, p.one)),
    "afa_multi_event": Query(zero_until_one("x", 10, p.any)),
    "alter_event_duration_constant": Query(lambda s: s.with_duration(5)),
    "average_int_snapshot": Query(lambda s: s.aggregate(x=sq.mean("x"))),
    "chop_offset0_period10": Query(lambda s: s.chop(10)),
    "clipbyconstantclippedintervals": Query(lambda s: s.clip(10)),
    "clipbyconstantnoopedges": Query(lambda s: s.clip(10)),
    "clip_by_stream_int_keys_small": Query(
        lambda left, right: left.with_columns(k=sq.col("x") % 10).clip(right, left_on="k", right_on="x").select("x")
    ),
    "clip_by_stream_string_keys": Query(
        lambda left, right: by_first_character(left).clip(by_first_character(right), on="k").select("x")
    ),
    "coalesce_end_edges_toendedgefreetest1": Query(unchanged),
    "coalesce_end_edges_toendedgefreetest3": Query(unchanged),
    "compound_sum_count": Query(lambda s: s.aggregate(Sum=sq.sum("x"), Count=sq.count())),
    "count_includes_null_payloads": Query(lambda s: s.aggregate(x=sq.count())),
    "countnotnull_all_null_still_outputs_zero": Query(
        lambda s: s.aggregate(x=sq.count_not_null("x")), schema={"x": pl.String}
    ),
    "disjoint_union_punctuation_minimum": Query(union),
    "disorder_adjust_1": Query(unchanged, disorder=sq.adjust()),
    "disorder_adjust_3": Query(unchanged, disorder=sq.adjust()),
    "disorder_adjust_4": Query(unchanged, disorder=sq.adjust()),
    "doc_reorder_latency_100_drop": Query(unchanged, disorder=sq.drop(wait=100)),
    "extend_lifetime_extendtest1": Query(lambda s: s.extend(3)),
    "extend_lifetime_extendtest2": Query(lambda s: s.extend(10)),
    "extend_lifetime_extendtestnegative4": Query(lambda s: s.extend(-15)),
    "filtered_aggregates_in_window": Query(filtered_counts),
    "group_aggregate_constant_key": Query(
        lambda s: s.group_apply(lambda g: g.aggregate(x1=sq.count()), x0=pl.lit(True))
    ),
    "group_aggregate_count_by_key": Query(counted_by_hundreds),
    "guide_chop_context_switches": Query(chopped_switches),
    "guide_final_query_top_process": Query(top_process),
    "guide_timeslices": Query(timeslices),
    "join_edges": Query(join_by_first_character),
    "join_intervals": Query(join_by_first_character),
    "join_sliding_windows": Query(lambda left, right: left.with_duration(100).join(right.with_duration(100), on="x")),
    "left_outer_join_with_post_predicate": Query(left_outer_join),
    "where_not_exists_edges": Query(
        lambda left, right: by_first_character(left).where_not_exists(by_first_character(right), on="k").select("x")
    ),
    "guide_alter_duration_infinite": Query(lambda s: s.with_duration(None)),
    "guide_count_all_output": Query(lambda s: s.aggregate(x=sq.count())),
    "guide_disorder_drop": Query(unchanged, disorder=sq.drop()),
    "guide_group_apply": Query(time_by_process),
    "guide_hopping_sum_one_process": Query(
        lambda s: s.hopping_window(3600, 3600, closed="right").aggregate(x=sq.sum("Timeslice"))
    ),
    "guide_select": Query(lambda s: s.where(sq.col("CpuId").is_in([1, 2])).select("Tick", "ProcessId", "CpuId")),
    "guide_shift": Query(lambda s: s.shift(1)),
    "hopping_1": Query(lambda s: grouped_sum(hopping(s))),
    "hopping_3": Query(lambda s: grouped_sum(hopping(s))),
    "hopping_5": Query(lambda s: hopping(s).aggregate(x=sq.max("field1"))),
    "hopping_6": Query(lambda s: hopping(s).aggregate(x=sq.min("field1"))),
    "partitioned_running_average_start_edges": Query(per_partition(lambda g: g.aggregate(x=sq.mean("x")))),
    "partitioned_session_average": Query(per_partition(lambda g: g.session_window(5, 10).aggregate(x=sq.mean("x")))),
    "partitioned_session_sum": Query(per_partition(lambda g: g.session_window(2, 5).aggregate(x=sq.sum("x")))),
    "partitioned_stitch": Query(per_partition(lambda g: g.stitch())),
    "partitioned_tumbling_average": Query(
        per_partition(lambda g: g.tumbling_window(1, closed="right").aggregate(x=sq.mean("x")))
    ),
    "partitioned_union": Query(union),
    "pattern_A_B_simultaneous_allowed": Query(a_then_b_in_order),
    "pattern_A_Bopt_infinite": Query(a_then_maybe_b),
    "pattern_A_Bstar_C_sum": Query(sum_of_bs),
    "pattern_A_Copt_or_BB": Query(a_then_c_or_bb),
    "pattern_Aplus_Bplus_grouped": Query(a_plus_b_plus),
    "pattern_O_opt_Astar_F": Query(order_then_food),
    "pattern_partitioned_low_watermark_above_max_duration": Query(ab_plus(4)),
    "pattern_partitioned_low_watermark_below_max_duration": Query(ab_plus(7)),
    "percentile_continuous_0_6": Query(lambda s: s.aggregate(x=sq.percentile("x", 0.6))),
    "point_at_end_edges": Query(lambda s: s.point_at_end()),
    "quantize_hopping_100_10": Query(lambda s: s.quantize(100, 10)),
    "quantize_progressive_10_10_5": Query(lambda s: s.quantize(10, 10, progress=5)),
    "quantize_tumbling_10": Query(lambda s: s.quantize(10, 10)),
    "session_2": Query(session_sum(6)),
    "session_3": Query(session_sum(20, 30)),
    "session_5": Query(session_sum(10, 20)),
    "session_grouped_1": Query(session_grouped(50)),
    "session_grouped_2": Query(session_grouped(6)),
    "session_punctuations_flow_through": Query(session_sum(5, 10)),
    "stitch_multisetonestart": Query(lambda s: s.stitch()),
    "stitch_points_gap": Query(lambda s: s.stitch()),
    "stitch_simplesplice": Query(lambda s: s.stitch()),
    "stitch_timeinvert": Query(lambda s: s.stitch()),
    "sum_decimal_snapshot": Query(lambda s: s.aggregate(x=sq.sum("x")), convert=decimal),
    "sum_int_snapshot": Query(lambda s: s.aggregate(x=sq.sum("x"))),
    "topk_not_coalesced_across_adjacent_equal_results": Query(lambda s: s.aggregate(x=sq.top_k("x", 5))),
    "tumbling_1": Query(lambda s: grouped_sum(tumbling(s))),
    "tumbling_3": Query(lambda s: grouped_sum(tumbling(s))),
    "union_past_punctuation_is_raised": Query(union),
    "union_sequential": Query(union),
}

CLOCKS = "one clock per partition: Squill has one clock per source"


@dataclass(frozen=True)
class Pushed:
    """A case whose events are pushed into a source that makes punctuations itself, and some of those it makes."""

    punctuate_every: int
    generated: frozenset[int]


PUSHED: dict[str, Pushed] = {
    "explicit_and_generated_punctuations": Pushed(100, frozenset({90, 100, 200, 300})),
    # Of those made by end edges there are none: a pushed row brings its end along.
    "periodic_punctuation_2": Pushed(2, frozenset({2, 4, 6})),
}

NOT_YET: dict[str, str] = {}

LEFT_OUT: dict[str, str] = {
    "adjust_drops_point_below_low_watermark": CLOCKS,
    "disjoint_union_low_watermarks": CLOCKS,
    "explicit_and_generated_low_watermarks": CLOCKS,
    "ingress_flushonlowwatermarkdualstream": CLOCKS,
    "ingress_lowwatermarkgeneration": CLOCKS,
    "ingress_punctuationtimegeneration": CLOCKS,
    "partitioned_reorder_drop10": CLOCKS,
    "where_not_exists_partitioned_low_watermark": CLOCKS,
}
