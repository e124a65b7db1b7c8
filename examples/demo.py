"""Count clicks per ad in sliding windows, in this process and on an embedded Spark, and see that both agree.

Run it with ``make demo``, or ``python examples/demo.py``.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import polars as pl

import squill as sq

CLICKS = 1_000_000
ADS = 5_000
STEPS = 5
FIRST_DAY = dt.datetime(2024, 3, 1)


@contextmanager
def step(number: int, title: str) -> Iterator[None]:
    """Say what is being done, then how long it took."""
    print(f"[{number}/{STEPS}] {title} ", end="", flush=True)
    begin = time.perf_counter()
    yield
    print(f"({time.perf_counter() - begin:.1f} s)")


def make_clicks() -> pl.DataFrame:
    """Two weeks of clicks in time order; a few ads get most of them, and some clicks are of bots."""
    random = np.random.default_rng(7)
    seconds = np.sort(random.integers(0, 14 * 86_400, CLICKS))
    ads = random.zipf(1.2, CLICKS) % ADS
    users = random.integers(0, 100_000, CLICKS)
    times = np.datetime64(FIRST_DAY, "us") + seconds.astype("timedelta64[s]")
    named = pl.Series("ad", ads).cast(pl.String).str.zfill(4)
    return pl.DataFrame({"time": times, "ad": "ad-" + named, "user": users})


def without_bots(clicks: sq.Stream) -> sq.Stream:
    return clicks.where(sq.col("user") % 50 != 0).select("ad")


def hourly(ad: sq.Stream) -> sq.Stream:
    """How many clicks the last day had, told every hour."""
    return ad.hopping_window("1d", "1h").aggregate(clicks=sq.count())


def timed(run: Callable[[], pl.DataFrame]) -> tuple[pl.DataFrame, float]:
    begin = time.perf_counter()
    answer = run()
    return answer, time.perf_counter() - begin


def main() -> int:
    """Return 0 when both answers agree."""
    with step(1, f"making {CLICKS:,} clicks on {ADS:,} ads"):
        clicks = make_clicks()
    local = without_bots(sq.from_frame(clicks, start="time")).group_apply("ad", hourly)
    with step(2, "counting in this process"):
        expected = local.collect()
    with step(3, "starting an embedded Spark with two machines"):
        cluster = sq.spark(master="local[2]", machines=2)
    with cluster:
        source = cluster.from_frame(clicks, start="time").query(without_bots)
        sharded = source.rekey("ad").redistribute().query(hourly)
        with step(4, "the same query on Spark: two fragments, one exchange of Arrow files"):
            found = sharded.collect()
        with step(5, "comparing the answers"):
            agree = found.sort(found.columns).equals(expected.sort(expected.columns))
        _, spark_seconds = timed(sharded.collect)
    _, local_seconds = timed(local.collect)
    print()
    print(sharded.explain())
    show(found)
    print(f"once warm: {local_seconds:.2f} s in this process, {spark_seconds:.2f} s on Spark")
    if not agree:
        print("error: the answers differ", file=sys.stderr)
        return 1
    print(f"both gave the same {found.height:,} rows")
    return 0


def show(answer: pl.DataFrame) -> None:
    """Print the busiest ads of the last full day."""
    noon = FIRST_DAY + dt.timedelta(days=13, hours=12)
    alive = (pl.col("start") <= noon) & (pl.col("end") > noon)
    top = answer.filter(alive).sort(["clicks", "ad"], descending=[True, False]).head(5).select("ad", "clicks")
    print(f"\nmost clicks in the 24 hours before {noon:%Y-%m-%d %H:%M}:")
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(top)


if __name__ == "__main__":
    sys.exit(main())
