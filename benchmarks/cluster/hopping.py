"""The count of each user's clicks in windows of 7 days, beside Spark's `window()` and the best rewrites in SQL."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import squill as sq
from benchmarks.cluster import tables
from benchmarks.cluster.sides import spark_query, squill_plan
from benchmarks.harness import Comparison, Experiment
from benchmarks.hopping import Hopping

__all__ = ["DAILY", "FAMILY", "HOURLY", "REWRITES", "WINDOW", "counts", "experiments", "opened"]

FAMILY = "cluster"
DAILY = "per-key hopping count, 7 d / 1 d"
HOURLY = "per-key hopping count, 7 d / 1 h"
SQUILL = "squill"
WINDOW = "spark window()"
MERGED, COUNTED, PLACED = "spark deltas", "spark deltas of counts", "spark deltas, one shuffle"
REWRITES = (MERGED, COUNTED, PLACED)
WEEK = timedelta(days=7)
# 200,000 rows become 34 million before Spark groups them.
MOST_HOURLY = 200_000


def experiments() -> list[Experiment]:
    return [
        _comparison(DAILY, Hopping(size=WEEK, hop=timedelta(days=1), key="user"), None),
        _comparison(HOURLY, Hopping(size=WEEK, hop=timedelta(hours=1), key="user"), MOST_HOURLY),
    ]


def _comparison(name: str, query: Hopping, most_window_events: int | None) -> Comparison:
    return Comparison(
        family=FAMILY,
        name=name,
        data=tables.clicks,
        sides=(
            squill_plan(SQUILL, opened, lambda clicks: counts(clicks, query)),
            spark_query(_window(query), _files, WINDOW, form=query.per_window, most_events=most_window_events),
            spark_query(_deltas(query, EACH), _files, MERGED),
            spark_query(_deltas(query, COUNTED_FIRST), _files, COUNTED),
            spark_query(_deltas(query, PLACED_FIRST), _files, PLACED),
        ),
    )


def opened(cluster: sq.Cluster, folder: Path) -> tuple[sq.ShardedStream]:
    return (cluster.scan(folder / "*.parquet", start="ts"),)


def _files(folder: Path) -> dict[str, Path]:
    return {"clicks": folder}


def counts(clicks: sq.ShardedStream, query: Hopping) -> sq.ShardedStream:
    placed = clicks.rekey("user").redistribute()
    return placed.query(lambda user: user.hopping_window(query.size, query.hop).aggregate(n=sq.count()))


def _window(query: Hopping) -> str:
    size, hop = (f"{duration // timedelta(hours=1)} hours" for duration in (query.size, query.hop))
    return f"""
        select window.end as window_end, user, count(*) as n
        from {{clicks}} group by user, window(ts, '{size}', '{hop}')
    """


# Three ways to the same deltas; hop is the first window that counts the click.
EACH = """
    select user, unix_micros(ts) div {hop_us} + 1 as hop, 1L as n from {{clicks}}
"""
COUNTED_FIRST = """
    select user, unix_micros(ts) div {hop_us} + 1 as hop, count(*) as n from {{clicks}} group by 1, 2
"""
PLACED_FIRST = """
    select /*+ repartition(4, user) */ user, unix_micros(ts) div {hop_us} + 1 as hop, 1L as n from {{clicks}}
"""


def _deltas(query: Hopping, entering: str) -> str:
    return f"""
        with entering as ({entering.format(hop_us=query.hop_us)}),
        deltas as (
            select user, stack(2, hop, n, hop + {query.copies}, -n) as (hop, change) from entering
        ), changes as (
            select user, hop, sum(change) as change from deltas group by user, hop
        ), running as (
            select user, hop, lead(hop) over ordered as until, sum(change) over ordered as n
            from changes window ordered as (partition by user order by hop)
        )
        select timestamp_micros(hop * {query.hop_us}) as start, timestamp_micros(until * {query.hop_us}) as `end`,
            user, n
        from running where n > 0
    """
