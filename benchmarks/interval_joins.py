"""Joins of lifetimes: term A followed by term B within an hour, and validity tables that overlap."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.duck import duckdb_side
from benchmarks.peers.spark_sql import spark_side

__all__ = ["FOLLOWED", "JOIN", "NOT_FOLLOWED", "OVERLAP", "experiments"]

FAMILY = "joins"
SQUILL, POLARS = "squill", "polars"
FOLLOWED = "term A followed by term B within 1 h, per user"
NOT_FOLLOWED = "term A, as long as no B follows it"
OVERLAP = "overlap of two validity tables, no key"
JOIN = "the join"
HOUR = timedelta(hours=1)
TERMS = 20


def experiments() -> list[Experiment]:
    return [followed(), not_followed(), overlap()]


# -- A followed by B ----------------------------------------------------------------------------------------


def searches(n: int) -> pl.DataFrame:
    """Return the events with one of 20 terms, equally many each."""
    term = ((pl.col("x") * 64).cast(pl.Int64) % TERMS).cast(pl.Int32)
    return data.events(n).select("ts", "user", term=term)


def followed() -> Comparison:
    return Comparison(
        family=FAMILY,
        name=FOLLOWED,
        data=searches,
        sides=(
            Side(name=SQUILL, prepare=lambda frame: lambda: _query(frame, _joined), peer=False),
            Side(name=POLARS, prepare=_followed_by_polars, most_events=1_000_000),
            duckdb_side(FOLLOWED_DUCKDB, most_events=1_000_000),
            spark_side(FOLLOWED_SPARK),
        ),
    )


def not_followed() -> Comparison:
    """Return existence beside the join of the same streams."""
    return Comparison(
        family=FAMILY,
        name=NOT_FOLLOWED,
        data=searches,
        sides=(
            Side(name=SQUILL, prepare=lambda frame: lambda: _query(frame, _alone), peer=False),
            Side(
                name=JOIN,
                prepare=lambda frame: lambda: _query(frame, _joined),
                rows=lambda _answer: pl.DataFrame(),
                form=lambda _rows: pl.DataFrame(),
                peer=False,
            ),
        ),
    )


def _query(frame: pl.DataFrame, relate: Callable[[sq.Stream, sq.Stream], sq.Stream]) -> pl.DataFrame:
    stream = sq.from_frame(frame, start="ts")
    first = stream.where(sq.col("term") == 3).with_duration("1h").select("user")
    return relate(first, stream.where(sq.col("term") == 7).select("user")).collect()


def _joined(first: sq.Stream, then: sq.Stream) -> sq.Stream:
    return first.join(then, on="user")


def _alone(first: sq.Stream, then: sq.Stream) -> sq.Stream:
    return first.where_not_exists(then, on="user")


# An A at the very instant of a B counts: both are alive then.
FOLLOWED_SPARK = """
    select b.ts as start, b.ts + interval 1 microsecond as `end`, a.`user`
    from events a join events b on a.`user` = b.`user` and b.ts >= a.ts and b.ts < a.ts + interval 1 hour
    where a.term = 3 and b.term = 7
"""
FOLLOWED_DUCKDB = FOLLOWED_SPARK.replace("`", '"')


def _followed_by_polars(frame: pl.DataFrame) -> Callable[[], pl.DataFrame]:
    def run() -> pl.DataFrame:
        lazy = frame.lazy()
        first = lazy.filter(pl.col("term") == 3).select("user", "ts")
        then = lazy.filter(pl.col("term") == 7).select("user", start="ts")
        pairs = first.join(then, on="user").filter(
            (pl.col("start") >= pl.col("ts")) & (pl.col("start") < pl.col("ts") + HOUR)
        )
        return pairs.select("start", "user", end=pl.col("start") + timedelta(microseconds=1)).collect()

    return run


# -- overlap ------------------------------------------------------------------------------------------------


def validity(n: int) -> pl.DataFrame:
    """Return two tables of n / 10 rows each, one below the other; a row overlaps two or three of the other."""
    rng = np.random.default_rng(2017)
    rows = max(n // 10, 1)

    def table(*, is_left: bool) -> pl.DataFrame:
        since = np.sort(rng.integers(0, 1_000 * rows, rows))
        until = since + rng.integers(1, 2_000, rows)
        return pl.DataFrame({"since": since, "until": until, "x": np.arange(rows), "is_left": is_left})

    return pl.concat([table(is_left=True), table(is_left=False)])


def overlap() -> Comparison:
    return Comparison(
        family=FAMILY,
        name=OVERLAP,
        data=validity,
        sides=(
            Side(name=SQUILL, prepare=_overlap_by_squill, peer=False),
            duckdb_side(OVERLAP_SQL, most_events=None),
        ),
    )


OVERLAP_SQL = """
    select greatest(a.since, b.since) as start, least(a.until, b.until) as "end", a.x, b.x as x_right
    from (from events where is_left) a join (from events where not is_left) b
    on a.since < b.until and b.since < a.until
"""


def _overlap_by_squill(frame: pl.DataFrame) -> Callable[[], pl.DataFrame]:
    left = frame.filter("is_left").drop("is_left").rechunk()
    right = frame.filter(~pl.col("is_left")).drop("is_left").rechunk()

    def run() -> pl.DataFrame:
        one = sq.from_frame(left, start="since", end="until")
        return one.join(sq.from_frame(right, start="since", end="until"), how="cross").collect()

    return run
