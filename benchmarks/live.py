"""Live queries: how much they sustain, what an epoch and a large state cost, and how long a row is on its way.

Spark's own streaming aggregation runs over the same files in the same session, with a window of the same size and
hop; it copies every row for each window that it is in, so it is given fewer rows and compared per row.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import squill as sq
from benchmarks.cluster import tables
from benchmarks.harness import Experiment, Measured, Outcome, Settings, assert_same_rows, timed
from benchmarks.peers import spark_session
from squill.runtime.live.handle import LiveQuery

__all__ = [
    "ADDED", "DELAY_LOCAL", "DELAY_SPARK", "EMPTY", "EPOCH", "LARGE", "MEDIAN", "OVERHEAD", "P99", "SPARK", "SQUILL",
    "STATE", "SUSTAINED", "experiments",
]  # fmt: skip

Plan = Callable[[sq.ShardedStream], sq.ShardedStream]

FAMILY = "live"
SUSTAINED = "per-key hopping count, 7 d / 1 h, from files as they come"
OVERHEAD = "epochs of few rows, 8 shards"
DELAY_SPARK, DELAY_LOCAL = "delay at 50,000 events/s, Spark", "delay at 50,000 events/s, local"
SQUILL, SPARK = "squill", "spark window()"
EPOCH, EMPTY = "an epoch of 1,000 rows", "looking for files that are not there"
LARGE = "epochs that touch 1 % of the keys of a large state, Spark"
TOUCHED, TOUCHED_ALONE = "an epoch", "an epoch with no other keys"
ADDED, STATE = "added by the state", "state"
KEYS_PER_EVENT = 0.7  # 7 M keys, more than a gigabyte of state
MEDIAN, P99 = "median", "99 of 100"
EPOCHS = 5
PEER_EVENTS = 200_000
RATE = 50_000
FILE_SECONDS = 0.2
DELAY_SECONDS = 20.0
SMALL_EPOCHS = 12


def windows(clicks: sq.ShardedStream) -> sq.ShardedStream:
    return clicks.rekey("user").redistribute().query(lambda s: s.hopping_window("7d", "1h").aggregate(n=sq.count()))


def _parts(events: int, files: int) -> Path:
    """Return a folder of clicks in time order, in so many files."""
    folder = tables.clicks(events).with_name(f"live-{events}-{files}")
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        frame = pl.read_parquet(tables.clicks(events) / "*.parquet").select("ts", "user").sort("ts")
        for number, part in enumerate(frame.iter_slices(-(-frame.height // files))):
            part.write_parquet(made / f"{number:04}.parquet")
        made.rename(folder)
    return folder


@dataclass(frozen=True, slots=True)
class Sustained:
    """A backlog of files, taken in epochs by both, each with a checkpoint."""

    family: str = FAMILY
    name: str = SUSTAINED

    def check(self, settings: Settings) -> None:
        """The answer of the epochs must be that of one run."""
        folder = _parts(3_000, 6)
        given: list[pl.DataFrame] = []
        cluster = spark_session.cluster_of()
        clicks = cluster.stream(folder, start="ts", files_per_epoch=2)
        windows(clicks).start(given.append, until_now=True).wait()
        expected = windows(cluster.scan(folder / "*.parquet", start="ts")).collect(sort=True)
        assert_same_rows(expected, pl.concat(given), f"{self.family}, {self.name}")

    def measure(self, settings: Settings) -> Outcome:
        folder = _parts(settings.events, 8 * EPOCHS)
        mine = [timed(lambda: _squill(folder)) for _ in range(settings.runs + 1)][1:]
        measured = [Measured(name=SQUILL, values=tuple(mine), events=settings.events)]
        if settings.peers:
            few = min(settings.events, PEER_EVENTS)
            theirs = [timed(lambda: _spark(_parts(few, EPOCHS))) for _ in range(settings.runs)]
            measured.append(Measured(name=SPARK, values=tuple(theirs), events=few))
        return Outcome(family=self.family, name=self.name, measured=tuple(measured))


def _squill(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        clicks = spark_session.cluster_of().stream(folder, start="ts", files_per_epoch=8)
        query = windows(clicks).start(f"{place}/out", checkpoint=f"{place}/checkpoint", until_now=True, complete=False)
        query.wait()


def _spark(folder: Path) -> None:
    from pyspark.sql import functions as f

    session = spark_session.session()
    with tempfile.TemporaryDirectory() as place:
        schema = session.read.parquet(str(folder)).schema
        rows = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        counted = rows.withWatermark("ts", "0 seconds").groupBy(f.window("ts", "7 days", "1 hour"), "user").count()
        writer = counted.writeStream.outputMode("append").format("parquet").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{place}/checkpoint").start(f"{place}/out").awaitTermination()


@dataclass(frozen=True, slots=True)
class Overhead:
    """Small files one by one, on eight shards: what an epoch costs that has next to nothing to do."""

    family: str = FAMILY
    name: str = OVERHEAD

    def check(self, settings: Settings) -> None:
        """The answer is checked by the other experiment."""

    def measure(self, settings: Settings) -> Outcome:
        rounds = [_epochs() for _ in range(settings.runs)]
        return Outcome(
            family=self.family,
            name=self.name,
            measured=(
                Measured(name=EPOCH, values=tuple(epoch for epoch, _ in rounds)),
                Measured(name=EMPTY, values=tuple(empty for _, empty in rounds)),
            ),
        )


def _epochs() -> tuple[float, float]:
    """Return the seconds of a small epoch, and of a look at a folder with nothing new."""
    with _running(8, windows, _clicks_at(0, 1_000)) as (query, folder):
        seconds = [_epoch_of(query, folder, number, _clicks_at(number, 1_000)) for number in range(1, SMALL_EPOCHS)]
        began = time.perf_counter()
        for _ in range(20):
            query._driver.inputs[0].news()
        empty = (time.perf_counter() - began) / 20
    return statistics.median(seconds[2:]), empty


@contextmanager
def _running(machines: int, plan: Plan, first: pl.DataFrame) -> Iterator[tuple[LiveQuery, Path]]:
    """Give a query whose first epoch is over, and the folder that it looks at."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        folder.mkdir()
        first.write_parquet(folder / "0000.parquet")
        clicks = spark_session.cluster_of(machines).stream(folder, start="ts", disorder=sq.drop())
        with plan(clicks).start(f"{place}/out", checkpoint=f"{place}/checkpoint", every=None) as query:
            _next_epoch(query, 0)
            yield query, folder


def _next_epoch(query: LiveQuery, epoch: int) -> float:
    """Wait for the end of an epoch after this one, and return how long it took."""
    while query.progress().epoch == epoch and not query.wait(0.002):
        pass
    return query.progress().epoch_seconds


def _epoch_of(query: LiveQuery, folder: Path, number: int, rows: pl.DataFrame) -> float:
    epoch = query.progress().epoch
    _appears(rows, folder, number)
    return _next_epoch(query, epoch)


@dataclass(frozen=True, slots=True)
class LargeState:
    """Epochs of rows of some keys, chosen at random, beside a state of a hundred times as many, and without them."""

    family: str = FAMILY
    name: str = LARGE

    def check(self, settings: Settings) -> None:
        """The answer is checked by the first experiment."""

    def measure(self, settings: Settings) -> Outcome:
        keys = int(settings.events * KEYS_PER_EVENT)
        large, state = _touching(keys, _keys_at(0, np.arange(keys)))
        alone, _ = _touching(keys, _keys_at(0, np.arange(1_000)))
        added = tuple(one - other for one, other in zip(large, alone, strict=True))
        measured = (
            Measured(name=TOUCHED, values=large),
            Measured(name=TOUCHED_ALONE, values=alone),
            Measured(name=ADDED, values=added),
            Measured(name=STATE, values=(state / 1e6,), unit="MB"),
        )
        return Outcome(family=self.family, name=self.name, measured=measured)


def _touching(keys: int, first: pl.DataFrame) -> tuple[tuple[float, ...], int]:
    """Return the seconds of epochs that touch one key in a hundred, workers warm, and the state's size."""

    def summed(clicks: sq.ShardedStream) -> sq.ShardedStream:
        placed = clicks.rekey("user").redistribute()
        return placed.query(lambda s: s.hopping_window("7d", "1h").aggregate(n=sq.count(), x=sq.sum("x")))

    rng = np.random.default_rng(5)
    seconds = []
    with _running(spark_session.CORES, summed, first) as (query, folder):
        for number in range(1, SMALL_EPOCHS):
            rows = _keys_at(number, rng.integers(0, keys, keys // 100))
            seconds.append(_epoch_of(query, folder, number, rows))
        state = sum(query.progress().state_bytes.values())
    return tuple(seconds[2:]), state


def _keys_at(second: int, users: np.ndarray[Any, Any]) -> pl.DataFrame:
    return _clicks_at(second, len(users)).with_columns(user=pl.Series(users), x=pl.Series(users / 64))


def _clicks_at(second: int, rows: int) -> pl.DataFrame:
    ticks = (np.linspace(second, second + 1, rows, endpoint=False) * 1e6).astype(np.int64)
    users = np.random.default_rng(second).integers(0, 300_000, rows)
    return pl.DataFrame({"ts": pl.Series(ticks).cast(pl.Datetime("us", "UTC")), "user": users})


def _appears(rows: pl.DataFrame, folder: Path, number: int) -> None:
    part = folder / f".{number:04}.part"
    rows.write_parquet(part)
    part.rename(folder / f"{number:04}.parquet")


@dataclass(frozen=True, slots=True)
class Delay:
    """Rows that are made as the wall clock goes, and when they come out of a query that counts them."""

    name: str
    on_spark: bool
    family: str = FAMILY

    def check(self, settings: Settings) -> None:
        """The answer is checked by the other experiment."""

    def measure(self, settings: Settings) -> Outcome:
        delays = _delays_on_spark() if self.on_spark else _delays_here()
        figures = np.percentile(delays, [50, 99])
        return Outcome(
            family=self.family,
            name=self.name,
            measured=(
                Measured(name=MEDIAN, values=(float(figures[0]),)),
                Measured(name=P99, values=(float(figures[1]),)),
            ),
        )


def _passed_on(clicks: sq.ShardedStream) -> sq.ShardedStream:
    """A query whose rows come out as they go in, after a movement."""
    return clicks.rekey("user").redistribute().query(lambda s: s.where(sq.col("user") % 2 == 0))


def _noting(delays: list[np.ndarray[Any, Any]], began: float) -> Any:
    def note(frame: pl.DataFrame) -> None:
        # Only what came after the first seconds, in which workers start.
        starts = frame["start"].cast(pl.Int64).to_numpy() / 1e6
        delays.append((time.time() - starts)[starts > began + DELAY_SECONDS / 4])

    return note


def _delays_on_spark() -> np.ndarray[Any, Any]:
    delays: list[np.ndarray[Any, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        folder.mkdir()
        _now_rows().write_parquet(folder / "0000.parquet")
        clicks = spark_session.cluster_of().stream(folder, start="ts", disorder=sq.drop(wait="100ms"))
        sink = _noting(delays, time.time())
        with _passed_on(clicks).start(sink, checkpoint=f"{place}/checkpoint", every="1s"):
            end, number = time.time() + DELAY_SECONDS, 0
            while time.time() < end:
                number += 1
                _appears(_now_rows(), folder, number)
                time.sleep(FILE_SECONDS)
    return np.concatenate(delays)


def _now_rows() -> pl.DataFrame:
    """Return the rows of the last fifth of a second."""
    rows = int(RATE * FILE_SECONDS)
    ticks = ((time.time() - FILE_SECONDS + np.arange(rows) / RATE) * 1e6).astype(np.int64)
    return pl.DataFrame(
        {"ts": pl.Series(ticks).cast(pl.Datetime("us", "UTC")), "user": np.arange(rows, dtype=np.int64)}
    )


def _delays_here() -> np.ndarray[Any, Any]:
    delays: list[np.ndarray[Any, Any]] = []
    source = sq.source({"ts": pl.Datetime("us", "UTC"), "user": pl.Int64}, start="ts", disorder=sq.drop())
    step = 0.004
    with sq.local(cores=2) as cluster:
        sink = _noting(delays, time.time())
        with _passed_on(cluster.stream(source)).start(sink, every=None):
            end = time.time() + DELAY_SECONDS
            rows = int(RATE * step)
            while time.time() < end:
                ticks = ((time.time() + np.arange(rows) / RATE - step) * 1e6).astype(np.int64)
                users = np.arange(rows, dtype=np.int64)
                source.push(pl.DataFrame({"ts": pl.Series(ticks).cast(pl.Datetime("us", "UTC")), "user": users}))
                time.sleep(step)
    return np.concatenate(delays)


def experiments() -> list[Experiment]:
    return [Sustained(), Overhead(), LargeState(), Delay(DELAY_SPARK, True), Delay(DELAY_LOCAL, False)]
