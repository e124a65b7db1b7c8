"""Joins: AS OF joins of trades with quotes, and joins of lifetimes, beside the tools that have them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import polars as pl

import squill as sq
from benchmarks import data, interval_joins
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.duck import duckdb_side

__all__ = ["ASOF", "POLARS", "experiments"]

FAMILY = "joins"
SQUILL, POLARS = "squill", "polars"
ASOF = "as of join, 10 events per quote, 10 k keys"
KEYS = 10_000
EVENTS_PER_QUOTE = 10


def experiments() -> list[Experiment]:
    return [asof(), *interval_joins.experiments()]


def asof() -> Comparison:
    """Return trades joined with the latest quote of their stock; both come in time order, as every tool wants them.

    One frame holds both, told apart by `is_quote`, because an experiment has one input; they are parted before
    anything is measured.
    """
    return Comparison(
        family=FAMILY,
        name=ASOF,
        data=trades_and_quotes,
        sides=(
            Side(name=SQUILL, prepare=_squill, peer=False),
            Side(name=POLARS, prepare=_polars),
            duckdb_side(ASOF_SQL, most_events=None),
        ),
    )


ASOF_SQL = """
    select t.ts as start, t.ts + interval 1 microsecond as "end", t.stock, t.x, q.bid, q.ask
    from (select * from events where not is_quote) t
    asof left join (select * from events where is_quote) q on t.stock = q.stock and t.ts >= q.ts
"""


def trades_and_quotes(n: int) -> pl.DataFrame:
    """Return n trades and n / 10 quotes of the same days; no two quotes of a stock begin together."""
    rng = np.random.default_rng(2016)
    quotes = max(n // EVENTS_PER_QUOTE, 1)
    return pl.concat(
        [
            pl.DataFrame({"ts": _times(rng, n), "stock": _stocks(rng, n), "x": rng.random(n), "is_quote": False}),
            # Polars and DuckDB take any of several quotes of one instant, so there is never a choice.
            pl.DataFrame(
                {
                    "ts": _times(rng, quotes),
                    "stock": _stocks(rng, quotes),
                    "bid": rng.random(quotes),
                    "ask": rng.random(quotes),
                    "is_quote": True,
                }
            ).unique(["ts", "stock"], keep="first", maintain_order=True),
        ],
        how="diagonal",
    )


def _stocks(rng: np.random.Generator, n: int) -> pl.Series:
    return pl.Series(rng.integers(0, KEYS, n))


def _times(rng: np.random.Generator, n: int) -> pl.Series:
    ticks = np.sort(rng.integers(data.EPOCH, data.EPOCH + 86_400_000_000, n))
    return pl.Series(ticks).cast(pl.Datetime("us"))


def _parted(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    trades = frame.filter(~pl.col("is_quote")).select("ts", "stock", "x").rechunk()
    return trades, frame.filter("is_quote").select("ts", "stock", "bid", "ask").rechunk()


def _squill(frame: pl.DataFrame) -> Callable[[], pl.DataFrame]:
    trades, quotes = _parted(frame)

    def run() -> pl.DataFrame:
        left, right = sq.from_frame(trades, start="ts"), sq.from_frame(quotes, start="ts")
        return left.asof_join(right, on="stock").collect()

    return run


def _polars(frame: pl.DataFrame) -> Callable[[], pl.DataFrame]:
    """The end of each trade's lifetime, which Squill gives too, is made as cheaply as it can be."""
    trades, quotes = _parted(frame)

    def run() -> pl.DataFrame:
        with warnings.catch_warnings():
            # It cannot check the order inside groups; both frames are in order.
            warnings.simplefilter("ignore", UserWarning)
            joined = trades.join_asof(quotes, on="ts", by="stock", strategy="backward")
        return joined.rename({"ts": "start"}).with_columns(end=pl.col("start") + pl.duration(microseconds=1))

    return run
