"""Whether memory stays flat while a stream ten times the usual size is pushed through a one-hour window.

Events come at a fixed rate, so a longer stream only takes longer. Every day has other keys, so that state
which is kept for keys that are gone would show. Batches are made on the fly, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Experiment, Measured, Outcome, Settings, assert_same_rows

__all__ = ["EARLY", "LATER", "NAME", "experiments"]

FAMILY = "memory"
NAME = "per-key count in 1-hour windows, pushed"
EARLY, LATER, SPEED = "highest in the first fifth", "highest after that", "pushing, generation included"
ROOT = Path(__file__).resolve().parents[1]
TIMES_EVENTS = 10
BATCH_ROWS = 100_000
# 100 M events are 30 days.
TICKS_PER_EVENT = 25_920
DAY_TICKS = 86_400_000_000
USERS = 100_000

Take = Callable[[pl.DataFrame], object]


@dataclass(frozen=True, slots=True)
class PushedStream:
    """One long stream; once, whatever the number of runs."""

    family: str = FAMILY
    name: str = NAME

    def check(self, settings: Settings) -> None:
        found: list[pl.DataFrame] = []
        events = 5 * BATCH_ROWS
        push(events, found.append)
        whole = pl.concat([batch(first) for first in range(0, events, BATCH_ROWS)])
        expected = windows(sq.from_frame(whole, start="ts")).collect()
        assert_same_rows(expected, pl.concat(found), f"{self.family}, {self.name}")

    def measure(self, settings: Settings) -> Outcome:
        events = settings.events * TIMES_EVENTS
        command = [sys.executable, "-m", "benchmarks.memory", str(events)]
        found = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        cut = max(1, len(found["megabytes"]) // 5)
        early, later = found["megabytes"][:cut], found["megabytes"][cut:]
        return Outcome(
            family=self.family,
            name=self.name,
            measured=(
                Measured(name=SPEED, values=(found["seconds"],), events=events),
                Measured(name=EARLY, values=(max(early),), unit="MB"),
                Measured(name=LATER, values=(max(later),), unit="MB"),
            ),
        )


def experiments() -> list[Experiment]:
    return [PushedStream()]


def windows(events: sq.Stream) -> sq.Stream:
    return events.group_apply("user", lambda g: g.hopping_window("1h", "10m").aggregate(n=sq.count()))


def batch(first: int) -> pl.DataFrame:
    """Return the events from number `first` on."""
    ticks = np.arange(first, first + BATCH_ROWS) * TICKS_PER_EVENT
    rng = np.random.default_rng(first)
    users = rng.zipf(1.05, BATCH_ROWS) % USERS + ticks // DAY_TICKS * USERS
    return pl.DataFrame({"ts": pl.Series(ticks + data.EPOCH).cast(pl.Datetime("us")), "user": users})


def push(events: int, take: Take) -> list[float]:
    """Push so many events and return the resident memory, in MB, after every hundredth of them."""
    source = sq.source({"ts": pl.Datetime("us"), "user": pl.Int64}, start="ts")
    windows(source).subscribe(take, emit="closed")
    megabytes = []
    every = max(1, events // BATCH_ROWS // 100)
    for number, first in enumerate(range(0, events, BATCH_ROWS)):
        source.push(batch(first))
        if number % every == every - 1:
            megabytes.append(resident_megabytes())
    source.complete()
    return megabytes


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    began = time.perf_counter()
    megabytes = push(int(sys.argv[1]), lambda _: None)
    print(json.dumps({"seconds": time.perf_counter() - began, "megabytes": megabytes}))


if __name__ == "__main__":
    main()
