"""The events that are measured, generated once from a fixed seed and kept as Arrow files.

`events(n)` holds 30 days of clicks in time order. Users follow a Zipf law folded onto 300 k keys: half of the
events fall on few hot users, the others are spread over all of them. A smaller n has fewer users in
proportion, so that a user has as many events in a small input as in a large one and peers that are too slow
for 10 M events can be compared per event.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["DAYS", "EPOCH", "FOLDER", "FULL", "USERS", "events", "made_events", "phrases", "users"]

FULL = 10_000_000
USERS = 300_000
ADS = 1_000
DAYS = 30
DAY_US = 86_400_000_000
# 2024-01-01, in the middle of nobody's summer time, in microseconds since 1970.
EPOCH = 1_704_067_200_000_000
PHRASES = 200_000
FOLDER = Path(os.environ.get("SQUILL_BENCH_DATA", Path(__file__).parent / "data"))


def users(n: int) -> int:
    """Return how many users `events(n)` has."""
    return max(100, USERS * n // FULL)


def events(n: int) -> pl.DataFrame:
    """Return n clicks: ts, user, user_name, ad_id, x.

    `x` is a multiple of 1/64, so that sums are exact in whatever order they are added.
    """
    return _cached(f"events-{n}", lambda: made_events(n))


def phrases(n: int) -> pl.DataFrame:
    """Return n searches: ts and phrase, some of which hold the words that the string predicates look for."""
    return _cached(f"phrases-{n}", lambda: _phrases(n))


def made_events(n: int, population: int | None = None) -> pl.DataFrame:
    """Return what `events` keeps, made anew; with a `population`, of so many users instead."""
    population = users(n) if population is None else population
    rng = np.random.default_rng(2014)
    # Hot users get any number, as in life, not the lowest ones.
    numbers = rng.permutation(population)
    user = numbers[_zipf_ranks(rng, n, population)]
    frame = pl.DataFrame(
        {
            "ts": _times(rng, n),
            "user": user,
            "ad_id": _zipf_ranks(rng, n, ADS),
            "x": rng.integers(0, 6_400, n) / 64,
        }
    )
    name = pl.format("user-{}", pl.col("user").cast(pl.String).str.zfill(7))
    return frame.with_columns(name.alias("user_name"))


def _zipf_ranks(rng: np.random.Generator, n: int, ranks: int) -> npt.NDArray[np.int64]:
    """Return n draws of 0 … ranks − 1, rank r with a weight of 1 / (r + 1)."""
    weights = np.cumsum(1 / np.arange(1, ranks + 1))
    return np.searchsorted(weights, rng.random(n) * weights[-1])


def _times(rng: np.random.Generator, n: int) -> pl.Series:
    ticks = np.sort(rng.integers(EPOCH, EPOCH + DAYS * DAY_US, n))
    return pl.Series(ticks).cast(pl.Datetime("us"))


def _phrases(n: int) -> pl.DataFrame:
    rng = np.random.default_rng(2015)
    pool = pl.Series(_pool(rng))
    return pl.DataFrame({"ts": _times(rng, n), "phrase": pool.gather(rng.integers(0, len(pool), n))})


def _pool(rng: np.random.Generator) -> list[str]:
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, size)) for size in rng.integers(2, 9, 3_000)]
    # One phrase in a hundred or so has each of the words looked for; "vegas" alone is one in two thousand.
    words += ["free", "vegas", "download"] * 10
    chosen = rng.integers(0, len(words), (PHRASES, 6))
    sizes = rng.integers(1, 7, PHRASES)
    made = [" ".join(words[word] for word in row[:size]) for row, size in zip(chosen, sizes, strict=True)]
    made[::2_000] = ["vegas"] * len(made[::2_000])
    made[7::400] = [f"free {phrase} download" for phrase in made[7::400]]
    return made


def _cached(name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    path = FOLDER / f"{name}.arrow"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        make().write_ipc(part)
        part.rename(path)
    # In memory and in one piece: neither page faults nor chunks are part of what is measured.
    return pl.read_ipc(path.read_bytes()).rechunk()
