"""Sharded queries beside the same queries in-process: every runtime must give the same answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

import squill as sq

__all__ = ["CASES", "Case"]

ROWS = 3_000
Query = Callable[[sq.Stream], sq.Stream]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A frame, what each shard does with its rows before they move, the key, and the query per key."""

    frame: pl.DataFrame
    keys: tuple[str, ...]
    query: Query
    before: Query = lambda stream: stream

    def in_process(self) -> pl.DataFrame:
        stream = self.before(sq.from_frame(self.frame, start="t"))
        return stream.group_apply(list(self.keys), self.query).collect()

    def sharded(self, cluster: sq.Cluster, splits: int | None = None, to: int | None = None) -> sq.ShardedStream:
        source = cluster.from_frame(self.frame, start="t", shards=splits).query(self.before)
        return source.rekey(*self.keys).redistribute(to).query(self.query)


def _frame(times: pl.Series, **columns: object) -> pl.DataFrame:
    """Rows out of time order, so that splits overlap and receivers must merge."""
    frame = pl.DataFrame({"t": times, **columns})
    order = np.random.default_rng(3).permutation(frame.height)
    return frame[order]


def _random(low: int, high: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(low, high, ROWS)


def _with_nulls(values: pl.Series, every: int) -> pl.Series:
    return pl.select(pl.when(pl.int_range(ROWS) % every != 0).then(values)).to_series()


SECONDS = pl.Series(_random(0, 30 * 86_400, 1))
DAYS = pl.Series(_random(0, 400, 2))
NUMBERS = pl.Series(_random(-50, 50, 5))
INTEGER_KEYS = pl.Series(_random(0, 60, 6))
TEXT_KEYS = pl.Series([f"ad-{number}" for number in _random(0, 40, 7)])


def _hourly_count(group: sq.Stream) -> sq.Stream:
    return group.hopping_window("7d", "1h").aggregate(n=sq.count())


CASES = {
    "integer keys, microseconds in a zone": Case(
        frame=_frame((SECONDS * 1_000_000).cast(pl.Datetime("us", "Europe/Zurich")), k=INTEGER_KEYS, x=NUMBERS),
        keys=("k",),
        query=_hourly_count,
        before=lambda stream: stream.where(sq.col("x") > -20).select("k"),
    ),
    "text keys with nulls, milliseconds": Case(
        frame=_frame((SECONDS * 1_000).cast(pl.Datetime("ms")), k=_with_nulls(TEXT_KEYS, 7), x=NUMBERS),
        keys=("k",),
        query=lambda group: group.with_duration("6h").aggregate(n=sq.count(), total=sq.sum("x")),
    ),
    "composite keys with nulls, dates": Case(
        frame=_frame(DAYS.cast(pl.Date), a=TEXT_KEYS, b=_with_nulls(INTEGER_KEYS % 5, 4), x=NUMBERS),
        keys=("a", "b"),
        query=lambda group: group.hopping_window("28d", "7d").sum("x"),
    ),
    "Boolean keys, integer time, float sums": Case(
        frame=_frame(SECONDS, k=INTEGER_KEYS % 2 == 0, x=NUMBERS / 8),
        keys=("k",),
        query=lambda group: group.with_duration(3_600).aggregate(total=sq.sum("x"), n=sq.count()),
    ),
    "date keys, times before 1970": Case(
        frame=_frame(DAYS.cast(pl.Int32) - 200, k=pl.Series([dt.date(2024, 1, 1)] * ROWS), x=NUMBERS),
        keys=("k",),
        query=lambda group: group.hopping_window(10, 5).aggregate(n=sq.count()),
    ),
    "one key, every row at one time": Case(
        frame=_frame(DAYS * 0, k=INTEGER_KEYS * 0, x=NUMBERS),
        keys=("k",),
        query=lambda group: group.with_duration(2).sum("x"),
    ),
}
