"""Counts per ad in windows that follow one another, beside Spark's group-by on the time cut off."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

import squill as sq
from benchmarks.cluster import tables
from benchmarks.cluster.hopping import FAMILY, opened
from benchmarks.cluster.sides import spark_query, squill_plan
from benchmarks.harness import Comparison, Experiment
from benchmarks.hopping import lifetimes_per_window

__all__ = ["EVERY_SECOND", "SPARK_SIDES", "SQUILL_SIDES", "TUMBLING", "experiments"]

COUNTED_FIRST, PLACED_FIRST = "squill, counted before it moves", "squill, moved before it is counted"
SQUILL_SIDES = (COUNTED_FIRST, PLACED_FIRST)
TRUNCATED, WINDOW = "spark date_trunc", "spark window()"
SPARK_SIDES = (TRUNCATED, WINDOW)
SIZES = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
TUMBLING = {unit: f"count per ad, tumbling 1 {unit}" for unit in SIZES}
EVERY_SECOND = "count per ad, 1 min / 1 s"


def experiments() -> list[Experiment]:
    return [*(_tumbling(unit) for unit in SIZES), _every_second()]


def _tumbling(unit: str) -> Comparison:
    size = SIZES[unit]
    # Squill reports a window when it has ended.
    truncated = f"""
        select date_trunc('{unit}', ts) + interval 1 {unit} as start,
            date_trunc('{unit}', ts) + interval 2 {unit} as `end`, ad_id, count(*) as n
        from {{clicks}} group by date_trunc('{unit}', ts), ad_id
    """
    window = f"""
        select window.end as start, window.end + interval 1 {unit} as `end`, ad_id, count(*) as n
        from {{clicks}} group by window(ts, '1 {unit}'), ad_id
    """

    def counted(ad: sq.Stream) -> sq.Stream:
        return ad.tumbling_window(size).aggregate(n=sq.count())

    return Comparison(
        family=FAMILY,
        name=TUMBLING[unit],
        data=tables.clicks,
        sides=(
            squill_plan(COUNTED_FIRST, opened, lambda clicks: _added(clicks.rekey("ad_id").query(counted))),
            squill_plan(PLACED_FIRST, opened, lambda clicks: clicks.rekey("ad_id").redistribute().query(counted)),
            spark_query(truncated, lambda folder: {"clicks": folder}, TRUNCATED),
            spark_query(window, lambda folder: {"clicks": folder}, WINDOW),
        ),
    )


def _added(counts: sq.ShardedStream) -> sq.ShardedStream:
    return counts.redistribute().query(lambda ad: ad.aggregate(n=sq.sum("n")))


def _every_second() -> Comparison:
    window = """
        select window.end as window_end, ad_id, count(*) as n
        from {clicks} group by ad_id, window(ts, '1 minute', '1 second')
    """

    def counted(ad: sq.Stream) -> sq.Stream:
        return ad.hopping_window("1m", "1s").aggregate(n=sq.count())

    def per_window(frame: pl.DataFrame) -> pl.DataFrame:
        return lifetimes_per_window(frame, SIZES["second"])

    return Comparison(
        family=FAMILY,
        name=EVERY_SECOND,
        data=tables.clicks,
        sides=(
            squill_plan(PLACED_FIRST, opened, lambda clicks: clicks.rekey("ad_id").redistribute().query(counted)),
            spark_query(window, lambda folder: {"clicks": folder}, WINDOW, form=per_window, most_events=500_000),
        ),
    )
