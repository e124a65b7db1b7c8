"""Relational data, alive at every instant: group-by and sums, which Squill hands to Polars with its own checks."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.duck import duckdb_side

__all__ = ["NAMES", "POLARS", "experiments"]

FAMILY = "relational"
SQUILL, POLARS = "squill", "polars"
GROUPED, FEW_GROUPS, TOTAL = "count and sums by user", "count and sums by ad", "sums of everything"
NAMES = (GROUPED, FEW_GROUPS, TOTAL)

Answer = Callable[[pl.DataFrame], pl.DataFrame]


def experiments() -> list[Experiment]:
    return [grouped(GROUPED, "user"), grouped(FEW_GROUPS, "ad_id"), total()]


def grouped(name: str, key: str) -> Comparison:
    """Return a group-by; the sum of integers has Squill's overflow check, which Polars does not make."""

    def by_squill(frame: pl.DataFrame) -> pl.DataFrame:
        aggregates = {"n": sq.count(), "ids": sq.sum("amount"), "s": sq.sum("x")}
        return sq.from_frame(frame).group_aggregate(key, **aggregates).collect()

    def by_polars(frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame.lazy().group_by(key)
        return rows.agg(n=pl.len(), ids=pl.col("amount").sum(), s=pl.col("x").sum()).collect()

    sql = f'select "{key}", count(*) as n, sum(amount)::bigint as ids, sum(x) as s from events group by "{key}"'
    return _comparison(name, key, by_squill, by_polars, sql)


def total() -> Comparison:
    def by_squill(frame: pl.DataFrame) -> pl.DataFrame:
        return sq.from_frame(frame).aggregate(n=sq.count(), ids=sq.sum("amount"), s=sq.sum("x")).collect()

    def by_polars(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.lazy().select(n=pl.len(), ids=pl.col("amount").sum(), s=pl.col("x").sum()).collect()

    sql = "select count(*) as n, sum(amount)::bigint as ids, sum(x) as s from events"
    return _comparison(TOTAL, "user", by_squill, by_polars, sql)


def _comparison(name: str, key: str, by_squill: Answer, by_polars: Answer, sql: str) -> Comparison:
    return Comparison(
        family=FAMILY,
        name=name,
        data=lambda n: data.events(n).select(key, "x", amount=pl.col("ad_id") - 500),
        sides=(
            Side(name=SQUILL, prepare=lambda frame: lambda: by_squill(frame), peer=False),
            Side(name=POLARS, prepare=lambda frame: lambda: by_polars(frame)),
            duckdb_side(sql, most_events=None),
        ),
    )
