"""A live query that runs for minutes as users run it: memory, state and checkpoint stay flat, and no row is lost.

``SQUILL_SOAK_SECONDS`` says how long; figures are printed.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.sharded import ShardedStream
from tests.resident import resident_bytes
from tests.unit.runtime.live.test_flat import MEGABYTE, size_of

SECONDS = float(os.environ.get("SQUILL_SOAK_SECONDS", "180"))
SAMPLES = 48
ROWS, PARTITIONS = 2_000, 2
SIZE, HOP = 20_000, 5_000
SCHEMA = {"t": pl.Int64, "k": pl.Int64, "x": pl.Float64}


def portion(partition: int, offset: int | None) -> Iterator[tuple[pl.DataFrame, int]]:
    """Give some rows each time; keys come and go with time."""
    begin = offset or 0
    t = np.arange(begin, begin + ROWS)
    k = (t // 7_919) * 100 + t % 97 + partition
    yield pl.DataFrame({"t": t, "k": k, "x": t % 13 / 4}, schema=SCHEMA), begin + ROWS


def windows(clicks: ShardedStream) -> ShardedStream:
    hops = clicks.rekey("k").redistribute()
    return hops.query(lambda s: s.hopping_window(SIZE, HOP).aggregate(n=sq.count(), x=sq.mean("x")))


@pytest.mark.faults
def test_minutes_of_a_window(tmp_path: Path) -> None:
    total = 0

    def take(frame: pl.DataFrame) -> None:
        nonlocal total
        # Over its whole life in windows a row counts for SIZE ticks.
        total += int((frame["n"] * (frame["end"] - frame["start"])).sum())

    samples: list[tuple[int, int, int, int, int]] = []
    with sq.local(cores=2) as cluster:
        clicks = cluster.stream(sq.partitions(PARTITIONS, portion), start="t", schema=SCHEMA)
        query = windows(clicks).start(take, checkpoint=tmp_path / "ck", every="10ms")
        for _ in range(SAMPLES):
            time.sleep(SECONDS / SAMPLES)
            assert query.status() == "running", query.error
            progress = query.progress()
            files, size = size_of_changing(tmp_path / "ck")
            samples.append((resident_bytes(), sum(progress.state_bytes.values()), progress.state_rows, files, size))
        query.stop()
        query.wait()
        progress = query.progress()
        none = sq.partitions(PARTITIONS, lambda partition, offset: iter(()))
        rest = windows(cluster.stream(none, start="t", schema=SCHEMA))
        rest.start(take, checkpoint=tmp_path / "ck", until_now=True).wait()
    assert total == progress.rows * SIZE
    third = SAMPLES // 3
    before, after = samples[third : 2 * third], samples[2 * third :]
    shown = [f"{progress.epoch} epochs, {progress.rows} rows in {SECONDS:.0f} s"]
    medians: dict[str, tuple[float, float]] = {}
    for number, name in enumerate(("memory", "state bytes", "state rows", "files", "checkpoint bytes")):
        medians[name] = tuple(statistics.median(item[number] for item in part) for part in (before, after))  # type: ignore[assignment]
        shown.append(f"{name}: {medians[name][0]:.0f} in the second third, {medians[name][1]:.0f} in the last")
    print("\n".join(shown))  # noqa: T201
    assert medians["memory"][1] - medians["memory"][0] < 20 * MEGABYTE, shown
    for name in ("state bytes", "state rows", "files", "checkpoint bytes"):
        assert medians[name][1] < 1.5 * medians[name][0] + 10, shown


def size_of_changing(folder: Path) -> tuple[int, int]:
    """Return the number of files and their bytes, of a folder that changes while it is looked at."""
    while True:
        try:
            return size_of(folder)
        except FileNotFoundError:
            continue
