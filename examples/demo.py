"""Find out which clicks on ads are of people: the advertising story of the Quill paper, on an embedded Spark.

Clicks are generated, some of them by bots. A bot is a user with too many clicks in too short a time, and its clicks
do not count while it is one. What is left is counted per ad and hour, by four plans that move rows in different
ways and give the same answer, and by Spark SQL. Run it with ``make demo``, or ``python examples/demo.py``.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import squill as sq

CLICKS = 3_000_000
BOTS = 300
USERS = 200_000
ADS = 5_000
DAYS = 7
FILES = 8
FIRST_DAY = dt.datetime(2024, 3, 1)
STEPS = 6

TOO_MANY, TOO_FAST = 12, "10m"


@contextmanager
def step(number: int, title: str) -> Iterator[None]:
    """Say what is being done, then how long it took."""
    print(f"[{number}/{STEPS}] {title} ", end="", flush=True)
    begin = time.perf_counter()
    yield
    print(f"({time.perf_counter() - begin:.1f} s)", flush=True)


def make_clicks(folder: Path) -> None:
    """A week of clicks in time order, in parquet files; a few ads get most of them, and bots click in bursts."""
    random = np.random.default_rng(7)
    of_bots = CLICKS // 10
    seconds = random.integers(0, DAYS * 86_400, CLICKS)
    users = random.integers(BOTS, USERS, CLICKS)
    users[:of_bots] = random.integers(0, BOTS, of_bots)
    # Every bot is awake for one hour a day, at a time of its own.
    seconds[:of_bots] = (
        users[:of_bots] * 250 % 82_000 + seconds[:of_bots] // 86_400 * 86_400 + seconds[:of_bots] % 3_600
    )
    ads = random.zipf(1.2, CLICKS) % ADS
    order = np.argsort(seconds, kind="stable")
    times = np.datetime64(FIRST_DAY, "us") + seconds[order].astype("timedelta64[s]")
    clicks = pl.DataFrame({"time": times, "ad": ads[order].astype(np.int32), "user": users[order].astype(np.int32)})
    for number, part in enumerate(clicks.iter_slices(-(-CLICKS // FILES))):
        part.write_parquet(folder / f"clicks-{number}.parquet")


def of_people(clicks: sq.ShardedStream) -> sq.ShardedStream:
    """The clicks of users who, at that moment, are no bots."""
    by_user = clicks.rekey("user").redistribute()
    bots = by_user.query(lambda user: user.sliding_window(TOO_FAST).count().where(sq.col("count") > TOO_MANY))
    return by_user.query(bots, lambda click, bot: click.where_not_exists(bot)).rekey("ad")


def hourly(clicks: sq.Stream) -> sq.Stream:
    return clicks.tumbling_window("1h").aggregate(clicks=sq.count())


def summed(parts: sq.Stream) -> sq.Stream:
    return parts.aggregate(clicks=sq.sum("clicks"))


def plans(clicks: sq.ShardedStream) -> dict[str, sq.ShardedStream]:
    """Four ways to count per ad and hour."""
    counted = clicks.query(hourly)
    return {
        "(a) move rows, count": clicks.redistribute().query(hourly),
        "(b) count, move counts, add": counted.redistribute().query(summed),
        "(c) count, add in the machine, move, add": (
            counted.redistribute(scope="local").query(summed).redistribute().query(summed)
        ),
        "(d) move in the machine, count, move, add": (
            clicks.redistribute(scope="local").query(hourly).redistribute(scope="global").query(summed)
        ),
    }


def with_spark_sql(session: Any, folder: Path) -> pl.DataFrame:
    """The same counts by Spark itself, of the same clicks."""
    session.read.parquet(str(folder)).createOrReplaceTempView("clicks")
    counted = session.sql(
        "select date_trunc('HOUR', start) as hour, ad, count(*) as clicks from clicks group by hour, ad"
    )
    frame = pl.from_arrow(counted.toArrow())
    assert isinstance(frame, pl.DataFrame)
    # Here a row says what is known from the end of its hour on.
    hour = pl.col("hour").dt.replace_time_zone(None)
    return frame.select(start=hour + dt.timedelta(hours=1), end=hour + dt.timedelta(hours=2), ad="ad", clicks="clicks")


def timed(run: Callable[[], pl.DataFrame]) -> tuple[pl.DataFrame, float]:
    """Return the answer, and how long it took the second time: the first one compiles and warms up."""
    run()
    begin = time.perf_counter()
    answer = run()
    return answer, time.perf_counter() - begin


def draw(answer: pl.DataFrame, everything: pl.DataFrame) -> None:
    """Print the clicks of each hour of a day: people's, and above them those of bots."""
    day = (FIRST_DAY + dt.timedelta(days=2), FIRST_DAY + dt.timedelta(days=3))

    def by_hour(frame: pl.DataFrame) -> dict[int, int]:
        # The row that starts at an hour counts the one before.
        of_day = frame.with_columns(pl.col("start") - dt.timedelta(hours=1)).filter(
            (pl.col("start") >= day[0]) & (pl.col("start") < day[1])
        )
        hours = of_day.group_by(hour=pl.col("start").dt.hour()).agg(pl.col("clicks").sum())
        return dict(hours.iter_rows())

    people, all_clicks = by_hour(answer), by_hour(everything)
    scale = 60 / max(all_clicks.values())
    print(f"\nclicks on {day[0]:%Y-%m-%d}, hour by hour: █ of people, ░ of bots")
    for hour in range(24):
        kept, total = people.get(hour, 0), all_clicks.get(hour, 0)
        print(f"{hour:>4} h {'█' * round(kept * scale)}{'░' * round((total - kept) * scale)} {kept:,} of {total:,}")


def main() -> int:
    """Return 0 when all answers agree."""
    with tempfile.TemporaryDirectory(prefix="squill-demo-") as name:
        return story(Path(name))


def story(folder: Path) -> int:
    raw, clean = folder / "raw", folder / "clean"
    raw.mkdir()
    with step(1, f"making {CLICKS:,} clicks on {ADS:,} ads, a tenth of them by {BOTS} bots, as {FILES} parquet files"):
        make_clicks(raw)
    with step(2, "starting an embedded Spark: two machines of two shards"):
        cluster = sq.spark(master="local[4]", machines=2, cores=2, folder=folder)
    with cluster:
        clicks = cluster.scan(raw, start="time")
        people = of_people(clicks)
        with step(3, f"removing bots: users of more than {TOO_MANY} clicks in {TOO_FAST}"):
            people.to_storage(clean)
        print("\n" + people.explain() + "\n")
        seconds: dict[str, float] = {}
        answers: dict[str, pl.DataFrame] = {}
        with step(4, "counting per ad and hour, in four plans"):
            for title, plan in plans(cluster.scan(clean)).items():
                answers[title], seconds[title] = timed(lambda plan=plan: plan.collect(sort=True))  # type: ignore[misc]
        with step(5, "Spark SQL counts the same clicks"):
            session = cluster.runtime.session  # type: ignore[attr-defined]
            answers["Spark SQL"], seconds["Spark SQL"] = timed(lambda: with_spark_sql(session, clean))
        with step(6, "counting all clicks, for the chart"):
            everything = plans(clicks.rekey("ad"))["(b) count, move counts, add"].collect()
    first, *others = answers.values()
    agree = all(same_rows(first, other) for other in others)
    draw(first, everything)
    print(f"\n{CLICKS:,} clicks, {int(first['clicks'].sum()):,} of people; once warm:")
    for title, taken in seconds.items():
        print(f"  {taken:6.2f} s  {title}")
    if not agree:
        print("error: the answers differ", file=sys.stderr)
        return 1
    print(f"all gave the same {first.height:,} rows")
    return 0


def same_rows(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    return one.equals(other.select(one.columns).cast(one.schema).sort(one.columns))


if __name__ == "__main__":
    sys.exit(main())
