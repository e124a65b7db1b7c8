"""What small batches cost: stored data cut into 10,000 rows, and live pushes of 100 rows."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Comparison, Experiment, Side

__all__ = ["ALONE", "COALESCED", "FILTERED_CUTS", "LARGE", "PLAIN_CUTS", "PUSHES", "experiments"]

FAMILY = "batches"
SMALL, LARGE = "10,000-row batches", "1 M-row batches"
ALONE, COALESCED, COLLECT = "pushed, each alone", "pushed, coalesced for 5 ms", "collected at once"
PUSH_ROWS = 100
# Enough for seconds of pushing; what is measured is the cost of a push.
PUSHED_EVENTS = 500_000

Build = Callable[[sq.Stream], sq.Stream]


def windowed(events: sq.Stream) -> sq.Stream:
    return events.hopping_window("1h", "10m").aggregate(n=sq.count())


def grouped(events: sq.Stream) -> sq.Stream:
    return events.group_apply("user", windowed)


def half(events: sq.Stream) -> sq.Stream:
    return events.where(sq.col("x") >= 50)


PLAIN_CUTS: dict[str, Build] = {"windowed count": windowed, "grouped windowed count": grouped}
FILTERED_CUTS: dict[str, Build] = {
    "windowed count after where": lambda events: windowed(half(events)),
    "grouped windowed count after where": lambda events: grouped(half(events)),
}
PUSHES: dict[str, Build] = {
    "pushes of 100 rows, where": half,
    "pushes of 100 rows, windowed count": windowed,
    "pushes of 100 rows, grouped windowed count": grouped,
}


def experiments() -> list[Experiment]:
    return [
        *(cuts(name, build) for name, build in (PLAIN_CUTS | FILTERED_CUTS).items()),
        *(pushes(name, build) for name, build in PUSHES.items()),
    ]


def cuts(name: str, build: Build) -> Comparison:
    """Return the same plan over small and over large batches."""
    return _comparison(name, (_collected(SMALL, build, 10_000), _collected(LARGE, build, 1_000_000)))


def pushes(name: str, build: Build) -> Comparison:
    """Return the same plan fed by pushes; all rows must be those of `collect`."""
    sides = (
        _pushed(COALESCED, build, "5ms"),
        _pushed(ALONE, build, None),
        _collected(COLLECT, build, None, PUSHED_EVENTS),
    )
    return _comparison(name, sides)


def _comparison(name: str, sides: tuple[Side, ...]) -> Comparison:
    return Comparison(family=FAMILY, name=name, data=data.events, columns=("ts", "user", "x"), sides=sides)


def _collected(name: str, build: Build, batch_rows: int | None, most_events: int | None = None) -> Side:
    def prepare(frame: pl.DataFrame) -> Callable[[], pl.DataFrame]:
        return lambda: build(sq.from_frame(frame, start="ts")).collect(batch_rows=batch_rows)

    return Side(name=name, prepare=prepare, most_events=most_events, peer=False)


def _pushed(name: str, build: Build, max_delay: str | None) -> Side:
    def prepare(frame: pl.DataFrame) -> Callable[[], list[pl.DataFrame]]:
        pieces = list(frame.iter_slices(PUSH_ROWS))

        def run() -> list[pl.DataFrame]:
            found: list[pl.DataFrame] = []
            source = sq.source(frame.schema, start="ts", max_delay=max_delay)
            subscription = build(source).subscribe(found.append, emit="closed")
            for piece in pieces:
                source.push(piece)
            source.complete()
            subscription.stop()
            return found

        return run

    return Side(name=name, prepare=prepare, rows=pl.concat, most_events=PUSHED_EVENTS, peer=False)
