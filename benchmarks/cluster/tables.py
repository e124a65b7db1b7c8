"""The tables that clusters are measured on: folders of eight parquet files, made once from fixed seeds.

The schemas of `rankings` and `visits` are those of AMPLab's Big Data Benchmark. An address is four groups of three
digits drawn so that its first 7 characters take 2,016 values, the first 11 take 66,528, and all 15 take 4,989,600.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks import data

__all__ = ["FILES", "WIDE_COLUMNS", "cached", "clicks", "clicks_and_sessions", "visits_and_rankings", "wide"]

FILES = 8
ADDRESS_PARTS = (48, 42, 33, 75)
VISITS_PER_PAGE = 8
YEAR_BEGINS, YEAR_DAYS = date(2000, 1, 1), 366
AGENTS, WORDS = 2_000, 20_000
WIDE_COLUMNS = 8
CLICKS_PER_USER, CLICKS_PER_SESSION = 32, 5
SESSION_HOURS = 12
ShareOf = Callable[[int], pl.DataFrame]


def clicks(n: int, population: int | None = None) -> Path:
    """Return n clicks in time order (see `data.events`); times are instants, which is what Spark knows best."""

    def make(folder: Path) -> None:
        frame = data.made_events(n, population).with_columns(pl.col("ts").dt.replace_time_zone("UTC"))
        _write(folder, lambda share: frame[n * share // FILES : n * (share + 1) // FILES])

    return cached(f"clicks-{n}" if population is None else f"clicks-{n}-of-{population}", make)


def visits_and_rankings(n: int) -> Path:
    """Return a folder with n visits in `visits` and the pages they go to, an eighth as many, in `rankings`."""

    def make(folder: Path) -> None:
        pages = _pages(max(n // VISITS_PER_PAGE, 10))
        _write(
            folder / "rankings", lambda share: pages[len(pages) * share // FILES : len(pages) * (share + 1) // FILES]
        )
        _write(folder / "visits", lambda share: _visits(share, n * (share + 1) // FILES - n * share // FILES, pages))

    return cached(f"visits-{n}", make)


def clicks_and_sessions(n: int) -> Path:
    """Return a folder with n clicks of a month in `clicks`, and half days of their users in `sessions`.

    Users are as frequent as each other; one click in ten is within a session of its user.
    """

    def made(rows: int, seed: int) -> pl.DataFrame:
        rng = np.random.default_rng([2020, seed])
        ticks = np.sort(rng.integers(0, 30 * 86_400 * 1_000_000, rows)).astype("datetime64[us]")
        users = rng.integers(0, max(n // CLICKS_PER_USER, 1), rows)
        return pl.DataFrame({"ts": ticks, "user": users, "x": rng.random(rows)})

    def make(folder: Path) -> None:
        sessions = made(n // CLICKS_PER_SESSION, 1).rename({"x": "y"})
        made(n, 0).write_parquet(folder / "clicks.parquet")
        sessions.with_columns(end=pl.col("ts") + pl.duration(hours=SESSION_HOURS)).write_parquet(
            folder / "sessions.parquet"
        )

    return cached(f"sessions-{n}", make)


def wide(n: int) -> Path:
    """Return n rows of a key and eight more numbers as Arrow files, which cost nothing to read but the bytes."""

    def share_of(share: int) -> pl.DataFrame:
        rng = np.random.default_rng([2019, share])
        rows = n * (share + 1) // FILES - n * share // FILES
        columns = {f"x{number}": rng.random(rows) for number in range(WIDE_COLUMNS)}
        return pl.DataFrame({"key": rng.integers(0, 1_000_000, rows), **columns})

    return cached(f"wide-{n}", lambda folder: _write(folder, share_of, "arrow"))


def _pages(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(2009)
    # Ranks fall off as those of the benchmark do: one page in a hundred has more than 100, one in 10,000 above 1,000.
    rank = np.minimum(10 / np.sqrt(rng.random(rows)), 10_000).astype(np.int32)
    frame = pl.DataFrame({"number": rng.permutation(rows), "pageRank": rank})
    return frame.select(
        pl.format("http://www.example.com/{}/pages/{}.html", pl.col("number") % 997, "number").alias("pageURL"),
        "pageRank",
        pl.Series("avgDuration", rng.integers(1, 100, rows, np.int32)),
    )


def _visits(share: int, rows: int, pages: pl.DataFrame) -> pl.DataFrame:
    rng = np.random.default_rng([2010, share])
    parts = [pl.Series(f"part{i}", 100 + rng.integers(0, size, rows)) for i, size in enumerate(ADDRESS_PARTS)]
    days = pl.Series(rng.integers(0, YEAR_DAYS, rows, np.int32) + (YEAR_BEGINS - date(1970, 1, 1)).days)
    return pl.DataFrame(parts).select(
        pl.concat_str(pl.all(), separator=".").alias("sourceIP"),
        pages["pageURL"].gather(rng.integers(0, len(pages), rows)).alias("destURL"),
        days.cast(pl.Date).alias("visitDate"),
        pl.Series("adRevenue", rng.integers(0, 6_400, rows) / 64),
        _agents().gather(rng.integers(0, AGENTS, rows)).alias("userAgent"),
        _words(3, "", 200).gather(rng.integers(0, 200, rows)).alias("countryCode"),
        _words(5, "-", 400).gather(rng.integers(0, 400, rows)).alias("languageCode"),
        _words(8, "", WORDS).gather(rng.integers(0, WORDS, rows)).alias("searchWord"),
        pl.Series("duration", rng.integers(1, 100, rows, np.int32)),
    )


def _agents() -> pl.Series:
    names = ("Firefox", "Chrome", "Safari", "Opera", "Lynx")
    made = [f"Mozilla/{i % 6}.0 (system {i // 50}; build {i}) {names[i % 5]}/{i % 97}.{i % 10}" for i in range(AGENTS)]
    return pl.Series(made)


def _words(size: int, last: str, count: int) -> pl.Series:
    rng = np.random.default_rng([2011, size])
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return pl.Series(["".join(rng.choice(letters, size)) + last for _ in range(count)])


def _write(folder: Path, share_of: ShareOf, ending: str = "parquet") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for share in range(FILES):
        path = folder / f"part-{share}.{ending}"
        if ending == "parquet":
            # As Spark would write it.
            share_of(share).write_parquet(path, compression="snappy")
        else:
            share_of(share).write_ipc(path)


def cached(name: str, make: Callable[[Path], None]) -> Path:
    folder = data.FOLDER / name
    if not folder.exists():
        part = folder.with_suffix(f".{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part)
        part.rename(folder)
    return folder
