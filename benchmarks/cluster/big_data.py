"""AMPLab's Big Data Benchmark, as the Quill paper asks it: scans, grouped sums, and a join that is then grouped.

The four plans of a grouped sum and the three of a join are those of the paper's Figures 1 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path

import polars as pl

import squill as sq
from benchmarks.cluster import tables
from benchmarks.cluster.hopping import FAMILY
from benchmarks.cluster.sides import SPARK_COLLECTED, layout_name, spark_query, squill_plan
from benchmarks.harness import Comparison, Experiment

__all__ = ["AGGREGATES", "JOIN", "JOIN_SIDES", "LIKES", "PLAN_SIDES", "SCANS", "experiments", "joined", "opened"]

SQUILL = "squill"
VISITS_PER_EVENT = 2
LAYOUTS = ((2, 1), (1, 2))
# How many characters of the address, and how many groups that makes at 20 M visits.
PREFIXES = {7: "2 k", 11: "67 k", 15: "5 M"}
AGGREGATES = {size: f"revenue by address, {groups} groups" for size, groups in PREFIXES.items()}
RANKS = (1_000, 100, 10)
SCANS = {rank: f"pages with a rank above {rank:,}" for rank in RANKS}
LIKES = {count: f"visits by LIKE, predicates: {count}" for count in (1, 2, 4)}
JOIN = "visits of a week joined with pages, by address"
WEEK = (date(2000, 1, 15), date(2000, 1, 22))


def experiments() -> list[Experiment]:
    return [
        *(_scan(rank) for rank in RANKS),
        *(_aggregate(size) for size in PREFIXES),
        _join(),
        *(_like(count) for count in LIKES),
    ]


def opened(cluster: sq.Cluster, folder: Path) -> tuple[sq.ShardedStream, sq.ShardedStream]:
    return cluster.scan(folder / "visits" / "*.parquet"), cluster.scan(folder / "rankings" / "*.parquet")


def _files(folder: Path) -> dict[str, Path]:
    return {"visits": folder / "visits", "rankings": folder / "rankings"}


# -- scans --------------------------------------------------------------------------------------------------


def _scan(rank: int) -> Comparison:
    def plan(_visits: sq.ShardedStream, rankings: sq.ShardedStream) -> sq.ShardedStream:
        return rankings.query(lambda s: s.where(sq.col("pageRank") > rank).select("pageURL", "pageRank"))

    sql = f"select pageURL, pageRank from {{rankings}} where pageRank > {rank}"
    compared = _comparison(SCANS[rank], (SQUILL, plan, (2, 1)), sql=sql)
    return replace(compared, sides=(*compared.sides, spark_query(sql, _files, SPARK_COLLECTED)))


PREDICATES = (
    (pl.col("userAgent").str.contains("Firefox/6", literal=True), "userAgent like '%Firefox/6%'"),
    (pl.col("adRevenue") > 10, "adRevenue > 10"),
    (pl.col("duration") < 50, "duration < 50"),
    (pl.col("countryCode") > "k", "countryCode > 'k'"),
)


def _like(count: int) -> Comparison:
    chosen = PREDICATES[:count]

    def plan(visits: sq.ShardedStream, _rankings: sq.ShardedStream) -> sq.ShardedStream:
        wanted = pl.all_horizontal(predicate for predicate, _ in chosen) if count > 1 else chosen[0][0]
        return visits.query(lambda s: s.where(wanted).select("sourceIP", "searchWord"))

    where = " and ".join(text for _, text in chosen)
    sql = f"select sourceIP, searchWord from {{visits}} where {where}"
    return _comparison(LIKES[count], (SQUILL, plan, (2, 1)), sql=sql)


# -- grouped sums -------------------------------------------------------------------------------------------


def _revenue(group: sq.Stream) -> sq.Stream:
    return group.aggregate(revenue=sq.sum("adRevenue"))


def _total(group: sq.Stream) -> sq.Stream:
    return group.aggregate(revenue=sq.sum("revenue"))


PLANS: dict[str, Callable[[sq.ShardedStream], sq.ShardedStream]] = {
    "a": lambda rows: rows.redistribute().query(_revenue),
    "b": lambda rows: rows.query(_revenue).redistribute().query(_total),
    "c": lambda rows: rows.query(_revenue).redistribute(scope="local").query(_total).redistribute().query(_total),
    "d": lambda rows: rows.redistribute(scope="local").query(_revenue).redistribute(scope="global").query(_total),
}


def _plan_side(plan: str, layout: tuple[int, int]) -> str:
    return f"squill ({plan}), {layout_name(*layout)}"


PLAN_SIDES = tuple(_plan_side(plan, layout) for layout, plan in product(LAYOUTS, PLANS))


def _aggregate(size: int) -> Comparison:
    def plan_of(name: str) -> Callable[..., sq.ShardedStream]:
        prefix = sq.col("sourceIP").str.slice(0, size)
        return lambda visits, _rankings: PLANS[name](visits.rekey(prefix=prefix))

    sql = f"select substr(sourceIP, 1, {size}) as prefix, sum(adRevenue) as revenue from {{visits}} group by 1"
    sides = [(_plan_side(plan, layout), plan_of(plan), layout) for layout, plan in product(LAYOUTS, PLANS)]
    return _comparison(AGGREGATES[size], *sides, sql=sql)


# -- the join -----------------------------------------------------------------------------------------------


def _meet(visits: sq.Stream, pages: sq.Stream) -> sq.Stream:
    return visits.join(pages)


JOINS: dict[str, Callable[[sq.ShardedStream, sq.ShardedStream], sq.ShardedStream]] = {
    "shuffle-shuffle": lambda visits, pages: visits.redistribute().query(pages.redistribute(), _meet),
    "broadcast-broadcast": lambda visits, pages: visits.broadcast().query(pages, _meet),
    "broadcast-shuffle": lambda visits, pages: (
        visits.broadcast(scope="global").redistribute(scope="local").query(pages.redistribute(scope="local"), _meet)
    ),
}
JOIN_SIDES = tuple(f"squill {plan}, {layout_name(*layout)}" for layout, plan in product(LAYOUTS, JOINS))
JOIN_SQL = f"""
    select sourceIP, sum(adRevenue) as revenue, avg(pageRank) as rank
    from {{visits}} join {{rankings}} on pageURL = destURL
    where visitDate between date'{WEEK[0]}' and date'{WEEK[1]}' group by sourceIP
"""


def joined(visits: sq.ShardedStream, rankings: sq.ShardedStream, plan: str = "shuffle-shuffle") -> sq.ShardedStream:
    """Return revenue and mean rank by address of the week's visits."""
    week = visits.query(
        lambda s: s.where(sq.col("visitDate").is_between(*WEEK)).select("sourceIP", "destURL", "adRevenue")
    )
    pages = rankings.query(lambda s: s.select("pageURL", "pageRank"))
    met = JOINS[plan](week.rekey(url=sq.col("destURL")), pages.rekey(url=sq.col("pageURL")))
    placed = met.rekey("sourceIP").redistribute()
    return placed.query(lambda address: address.aggregate(revenue=sq.sum("adRevenue"), rank=sq.mean("pageRank")))


def _join() -> Comparison:
    def plan_of(name: str) -> Callable[..., sq.ShardedStream]:
        return lambda visits, rankings: joined(visits, rankings, name)

    plans = [(plan_of(plan), layout) for layout, plan in product(LAYOUTS, JOINS)]
    return _comparison(JOIN, *((name, *plan) for name, plan in zip(JOIN_SIDES, plans, strict=True)), sql=JOIN_SQL)


def _comparison(
    name: str, *plans: tuple[str, Callable[..., sq.ShardedStream], tuple[int, int]], sql: str
) -> Comparison:
    sides = [squill_plan(side, opened, plan, machines=layout[0], cores=layout[1]) for side, plan, layout in plans]
    return Comparison(
        family=FAMILY,
        name=name,
        data=tables.visits_and_rankings,
        sides=(*sides, spark_query(sql, _files)),
        times=VISITS_PER_EVENT,
    )
