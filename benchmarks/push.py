"""How long results take and how much is sustained when rows are pushed: a short and a long `max_delay`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Experiment, Measured, Outcome, Settings, assert_same_rows

__all__ = ["DELAY", "FAST", "FRAMES_OF_10_000", "FRAMES_OF_100", "STEADY", "SUSTAINED", "experiments"]

FAMILY = "push"
STEADY = "200,000 events/s in frames of 100, max_delay 1 ms"
DELAY, MEDIAN_DELAY, SUSTAINED = "99th percentile of the delay", "median delay", "events/s reached"
FAST = "as fast as it goes, max_delay 1 s"
FRAMES_OF_100, FRAMES_OF_10_000 = "frames of 100", "frames of 10,000"
RATE, ROWS, SECONDS = 200_000, 100, 3
MOST_EVENTS = 5_000_000


def half(events: sq.Stream) -> sq.Stream:
    return events.where(sq.col("x") >= 50)


@dataclass(frozen=True, slots=True)
class Steady:
    """A fixed rate: the delay is that from the push of a frame to the call that brings its last row."""

    family: str = FAMILY
    name: str = STEADY

    def check(self, settings: Settings) -> None:
        pushed_answer_is_right(self.name, "1ms", ROWS)

    def measure(self, settings: Settings) -> Outcome:
        found = [run_steady(SECONDS) for _ in range(settings.runs)]
        names = (DELAY, MEDIAN_DELAY, SUSTAINED)
        units = ("ms", "ms", "events/s")
        measured = (
            Measured(name=name, values=tuple(run[i] for run in found), unit=unit)
            for i, (name, unit) in enumerate(zip(names, units, strict=True))
        )
        return Outcome(family=self.family, name=self.name, measured=tuple(measured))


def run_steady(seconds: float) -> tuple[float, float, float]:
    """Return the 99th percentile and the median of the delay in milliseconds, and the events per second."""
    frames = int(RATE * seconds / ROWS)
    # One tick per row: the frame that a result comes from is its start // ROWS.
    pieces = [pl.DataFrame({"t": np.arange(i * ROWS, (i + 1) * ROWS), "x": np.full(ROWS, 50)}) for i in range(frames)]
    pushed, arrived = np.zeros(frames), np.zeros(frames)

    def arrive(frame: pl.DataFrame) -> None:
        now = time.perf_counter()
        low, high = int(frame["start"][0]) // ROWS, int(frame["start"][-1]) // ROWS
        arrived[low : high + 1] = now

    source = sq.source(pieces[0].schema, start="t", max_delay="1ms")
    subscription = half(source).subscribe(arrive, emit="closed")
    begin = time.perf_counter()
    for i, piece in enumerate(pieces):
        ahead = begin + i * ROWS / RATE - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        pushed[i] = time.perf_counter()
        source.push(piece)
    took = time.perf_counter() - begin
    source.complete()
    subscription.stop()
    delays = (arrived - pushed)[:-1] * 1e3
    return float(np.percentile(delays, 99)), float(np.median(delays)), frames * ROWS / took


@dataclass(frozen=True, slots=True)
class Fast:
    """No pause between pushes: how many events per second come through."""

    family: str = FAMILY
    name: str = FAST

    def check(self, settings: Settings) -> None:
        pushed_answer_is_right(self.name, "1s", 1_000)

    def measure(self, settings: Settings) -> Outcome:
        events = min(settings.events, MOST_EVENTS)
        frame = data.events(events).select("ts", "user", "x")
        sides = []
        for name, rows in ((FRAMES_OF_10_000, 10_000), (FRAMES_OF_100, 100)):
            pieces = list(frame.iter_slices(rows))
            values = tuple(timed(pieces) for _ in range(settings.runs))
            sides.append(Measured(name=name, values=values, events=events))
        return Outcome(family=self.family, name=self.name, measured=tuple(sides))


def timed(pieces: list[pl.DataFrame]) -> float:
    begin = time.perf_counter()
    push_all(pieces, "1s", len)
    return time.perf_counter() - begin


def push_all(pieces: list[pl.DataFrame], max_delay: str, take: Callable[[pl.DataFrame], object]) -> None:
    source = sq.source(pieces[0].schema, start="ts", max_delay=max_delay)
    subscription = half(source).subscribe(take, emit="closed")
    for piece in pieces:
        source.push(piece)
    source.complete()
    subscription.stop()


def pushed_answer_is_right(name: str, max_delay: str, rows: int) -> None:
    frame = data.events(20_000).select("ts", "user", "x")
    found: list[pl.DataFrame] = []
    push_all(list(frame.iter_slices(rows)), max_delay, found.append)
    expected = half(sq.from_frame(frame, start="ts")).collect()
    assert_same_rows(expected, pl.concat(found), f"{FAMILY}, {name}")


def experiments() -> list[Experiment]:
    return [Steady(), Fast()]
