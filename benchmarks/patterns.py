"""Patterns per key: A, then any number of B, then C within an hour; and every event with its successor."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.duck import duckdb_side

__all__ = ["PAIRS", "SUMMED", "UNSUMMED", "experiments"]

FAMILY = "patterns"
SQUILL, POLARS = "squill", "polars"
SUMMED = "A B* C per key within 1 h, B summed"
UNSUMMED = "A B* C per key within 1 h, no registers"
PAIRS = "consecutive pairs per key"
HOUR = timedelta(hours=1)

Answer = Callable[[pl.DataFrame], pl.DataFrame]


def experiments() -> list[Experiment]:
    return [
        _comparison(SUMMED, summed_by_squill, lambda frame: runs_by_polars(frame, ["total"]), _runs_sql(', "total"')),
        _comparison(UNSUMMED, unsummed_by_squill, lambda frame: runs_by_polars(frame, []), _runs_sql("")),
        _comparison(PAIRS, pairs_by_squill, pairs_by_polars, PAIRS_SQL),
    ]


def lettered(n: int) -> pl.DataFrame:
    """Return the events with a kind of A, B or C, a third each."""
    kind = ((pl.col("x") * 64).cast(pl.Int64) % 3).replace_strict([0, 1, 2], ["A", "B", "C"])
    return data.events(n).select("ts", "user", "x", kind=kind)


def _comparison(name: str, by_squill: Answer, by_polars: Answer, sql: str) -> Comparison:
    return Comparison(
        family=FAMILY,
        name=name,
        data=lettered,
        sides=(
            Side(name=SQUILL, prepare=lambda frame: lambda: by_squill(frame), peer=False),
            Side(name=POLARS, prepare=lambda frame: lambda: by_polars(frame)),
            duckdb_side(sql),
        ),
    )


# -- Squill -------------------------------------------------------------------------------------------------

A, B, C = (sq.col("kind") == kind for kind in "ABC")


def summed_by_squill(frame: pl.DataFrame) -> pl.DataFrame:
    p = sq.pattern
    add = p.one(B, total=lambda total, x: total + x)
    return _detected(frame, p.seq(A, p.star(add), C).with_registers(total=0.0))


def unsummed_by_squill(frame: pl.DataFrame) -> pl.DataFrame:
    return _detected(frame, sq.pattern.seq(A, sq.pattern.star(B), C))


def _detected(frame: pl.DataFrame, pattern: sq.pattern.Pattern) -> pl.DataFrame:
    return sq.from_frame(frame, start="ts").group_apply("user", lambda g: g.detect(pattern, within=HOUR)).collect()


def pairs_by_squill(frame: pl.DataFrame) -> pl.DataFrame:
    pairs = sq.from_frame(frame, start="ts").select("user", "x").group_apply("user", lambda g: g.consecutive_pairs())
    return pairs.collect()


# -- others -------------------------------------------------------------------------------------------------
# Only B may stand between A and C, so every event that is no B opens a run of itself and the Bs after it, and a
# match is a run opened by A before one opened by C.


def runs_by_polars(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    runs = (
        frame.lazy()
        .with_columns(run=(pl.col("kind") != "B").cast(pl.Int64).cum_sum().over("user"))
        .group_by("user", "run")
        .agg(
            first=pl.col("ts").first(),
            opener=pl.col("kind").first(),
            total=pl.col("x").filter(pl.col("kind") == "B").sum(),
        )
        .sort("user", "run")
    )
    following = {"start": pl.col("first").shift(-1), "closer": pl.col("opener").shift(-1)}
    paired = runs.with_columns(**{name: item.over("user") for name, item in following.items()})
    is_match = (pl.col("opener") == "A") & (pl.col("closer") == "C") & (pl.col("start") < pl.col("first") + HOUR)
    return paired.filter(is_match).select("start", "user", *columns, end=pl.col("first") + HOUR).collect()


def _runs_sql(columns: str) -> str:
    return f"""
        with numbered as (
            select *, sum((kind <> 'B')::int) over (partition by "user" order by ts rows unbounded preceding) as run
            from events
        ), runs as (
            select "user", run, min(ts) as first, arg_min(kind, ts) as opener,
                coalesce(sum(x) filter (kind = 'B'), 0.0) as total
            from numbered group by "user", run
        ), paired as (
            select *, lead(first) over following as last, lead(opener) over following as closer
            from runs window following as (partition by "user" order by run)
        )
        select last as start, first + interval 1 hour as "end", "user" {columns} from paired
        where opener = 'A' and closer = 'C' and last < first + interval 1 hour
    """


def pairs_by_polars(frame: pl.DataFrame) -> pl.DataFrame:
    before = frame.lazy().select("ts", "user", x_right="x", x=pl.col("x").shift(1).over("user"))
    # Every event but the first of its user has one before it, and x is never null.
    return (
        before.filter(pl.col("x").is_not_null())
        .select("user", "x", "x_right", start="ts", end=pl.col("ts") + timedelta(microseconds=1))
        .collect()
    )


PAIRS_SQL = """
    with pairs as (
        select "user", ts, x as x_right, lag(x) over (partition by "user" order by ts) as x from events
    )
    select ts as start, ts + interval 1 microsecond as "end", "user", x, x_right from pairs where x is not null
"""
