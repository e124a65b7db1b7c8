"""The tables of progressive queries, made once from fixed seeds and stored in the order of progress.

Customers, orders and lines are shaped as those of TPC-H are, with what its query 3 reads of them: one customer in five
is of a segment, an order has one to seven lines, which are shipped up to 121 days after it. Ads and words follow Zipf
laws.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

import squill as sq
from benchmarks.cluster.tables import cached
from squill.plan.assignment import Assignment

__all__ = ["STEPS", "TERM", "clicks_and_impressions", "orders_and_lines", "searches"]

STEPS = 100
SHARDS = 2
ADS, WORDS, TERM = 1_000, 10_000, 40
FIRST_DAY, DAYS = 8_035, 2_406  # days of 1992 to 1998 since 1970, as TPC-H has them

MADE_ROWS = 10_000_000
"""So many rows are made at a time, as memory does not hold all of them."""

Int64s = npt.NDArray[np.int64]


def clicks_and_impressions(n: int) -> Path:
    """Return a folder with n impressions, a tenth as many clicks, by the hash of their users."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(2013)
        with tempfile.TemporaryDirectory(dir=folder) as unordered:
            for number, first in enumerate(range(0, n, MADE_ROWS)):
                rows = min(MADE_ROWS, n - first)
                users, ads = rng.integers(0, max(n // 40, 10), rows), _zipf(rng, rows, ADS)
                chosen = rng.integers(0, rows, rows // 10)
                _write(Path(unordered, "impressions", f"{number}.parquet"), user=users, ad=ads)
                _write(Path(unordered, "clicks", f"{number}.parquet"), user=users[chosen], ad=ads[chosen])
            with sq.local(cores=SHARDS) as cluster:
                for name in ("impressions", "clicks"):
                    by_user = sq.progress.hashed("user", STEPS)
                    cluster.scan(Path(unordered, name)).to_storage(folder / name, progress=by_user)

    return cached(f"progress-ctr-{n}", make)


def orders_and_lines(n: int) -> Path:
    """Return a folder with about n lines, their orders and customers, by the hash of the order."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(2003)
        orders, customers = n // 4, max(n // 40, 10)
        dates = rng.integers(FIRST_DAY, FIRST_DAY + DAYS, orders)
        keys, lines = 4 * np.arange(orders) + 1, rng.integers(1, 8, orders)
        pl.DataFrame({"c_custkey": np.arange(customers), "c_mktsegment": rng.integers(0, 5, customers)}).write_parquet(
            folder / "customer.parquet"
        )
        _store(
            folder / "orders",
            {
                "o_orderkey": keys,
                "o_custkey": rng.integers(0, customers, orders),
                "o_orderdate": _dates(dates),
                "o_shippriority": np.zeros(orders, np.int32),
            },
            sq.progress.hashed("o_orderkey", STEPS),
        )
        total = int(lines.sum())
        _store(
            folder / "lineitem",
            {
                "l_orderkey": np.repeat(keys, lines),
                "l_extendedprice": rng.integers(90_000, 10_500_000, total) / 64,
                "l_discount": rng.integers(0, 7, total) / 64,
                "l_shipdate": _dates(np.repeat(dates, lines) + rng.integers(1, 122, total)),
            },
            sq.progress.hashed("l_orderkey", STEPS),
        )

    return cached(f"progress-q3-{n}", make)


def searches(n: int) -> Path:
    """Return n words that users searched for, by the hash of the user; a user searches for words that are near."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(2012)
        users = rng.integers(0, max(n // 20, 10), n)
        # Who likes a topic searches for its words more often, so that words are correlated.
        topic = (users * 2_654_435_761 >> 7) % 20 == TERM % 20
        words = _zipf(rng, n, WORDS)
        near = np.where(topic & (rng.random(n) < 0.3), words // 20 * 20 + TERM % 20, words)
        _store(folder / "searches", {"user": users, "word": near}, sq.progress.hashed("user", STEPS))

    return cached(f"progress-searches-{n}", make)


def _zipf(rng: np.random.Generator, n: int, most: int) -> Int64s:
    weights = 1 / np.arange(1, most + 1)
    return np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(n)).astype(np.int64)


def _dates(days: Int64s) -> pl.Series:
    return pl.Series(days.astype(np.int32)).cast(pl.Date)


def _write(path: Path, **columns: Int64s) -> None:
    path.parent.mkdir(exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)


def _store(folder: Path, columns: Mapping[str, object], progress: Assignment) -> None:
    with sq.local(cores=SHARDS) as cluster:
        cluster.from_frame(pl.DataFrame(columns)).to_storage(folder, progress=progress)
