"""What the benchmarks must show, and how each figure is read from the outcomes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks import (
    bare_loop,
    batches,
    checkpoint,
    interval_joins,
    joins,
    live,
    memory,
    patterns,
    progressive,
    push,
    relational,
    startup,
    stateless,
    windows,
)
from benchmarks.cluster import big_data, exchange, growth, hopping, sides, threads, tumbling
from benchmarks.harness import Outcome, Spread
from benchmarks.peers import duck, polars_rewrites, spark_session, spark_sql
from benchmarks.progressive import answers, chunks

__all__ = ["Target", "Verdict", "verdicts"]

MILLION = 1e6
Figure = Callable[[Outcome], Spread | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One promise: a figure of one outcome stays on the right side of a limit; judged by its median."""

    family: str
    name: str
    what: str
    figure: Figure
    limit: float
    at_least: bool = False
    unit: str = "×"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target and what was measured; None when the sides it needs did not run."""

    target: Target
    measured: Spread | None

    @property
    def reached(self) -> bool | None:
        if self.measured is None:
            return None
        if self.target.at_least:
            return self.measured.median >= self.target.limit
        return self.measured.median <= self.target.limit


def verdicts(outcomes: Sequence[Outcome]) -> Iterator[Verdict]:
    """Return the verdict on every target whose experiment was run."""
    by_name = {(outcome.family, outcome.name): outcome for outcome in outcomes}
    for target in TARGETS:
        outcome = by_name.get((target.family, target.name))
        if outcome is not None:
            yield Verdict(target=target, measured=target.figure(outcome))


def ratio(*sides: str, of: str | None = None) -> Figure:
    """Return the first side's time over that of the fastest of these."""

    def figure(outcome: Outcome) -> Spread | None:
        present = [outcome.ratio(side, of) for side in sides if side in outcome]
        return max(present, key=lambda spread: spread.median) if present else None

    return figure


def faster(*sides: str) -> Figure:
    """Return how many times as fast as the fastest of these the first side is."""

    def figure(outcome: Outcome) -> Spread | None:
        slower = ratio(*sides)(outcome)
        return None if slower is None else Spread(1 / slower.median, 1 / slower.high, 1 / slower.low)

    return figure


def beyond_set_up(outcome: Outcome) -> Spread:
    """Return what all early answers take over what the one takes, without the 2 s in which pipes may be set up."""
    pairs = zip(outcome[answers.ALL].values, outcome[answers.COLLECT].values, strict=True)
    return Spread.of([max(early - 2, 0) / whole for early, whole in pairs])


def best_of(mine: Sequence[str], theirs: Sequence[str]) -> Figure:
    """Return how many times as fast as the fastest of theirs the fastest of these is."""

    def figure(outcome: Outcome) -> Spread | None:
        present = [side for side in theirs if side in outcome]
        if not present:
            return None
        fastest = min(present, key=lambda side: statistics.median(outcome[side].per_event))
        return max((outcome.ratio(side, of=fastest) for side in mine), key=lambda spread: spread.median)

    return figure


def megabytes_per_core(side: str, megabytes_per_event: float, cores: int) -> Figure:
    """Return MB/s per core."""

    def figure(outcome: Outcome) -> Spread:
        return Spread.of([megabytes_per_event / seconds / cores for seconds in outcome[side].per_event])

    return figure


def speed(side: str | None = None) -> Figure:
    """Return millions of events per second."""

    def figure(outcome: Outcome) -> Spread:
        found = (outcome.measured[0] if side is None else outcome[side]).events_per_second
        return Spread(found.median / MILLION, found.low / MILLION, found.high / MILLION)

    return figure


def seconds(side: str) -> Figure:
    return lambda outcome: outcome[side].spread


def added_per_event(side: str) -> Figure:
    """Return the nanoseconds per event that the first side takes beyond `side`."""

    def figure(outcome: Outcome) -> Spread:
        pairs = zip(outcome.measured[0].per_event, outcome[side].per_event, strict=True)
        return Spread.of([(mine - its) * 1e9 for mine, its in pairs])

    return figure


def _windows(name: str, what: str, figure: Figure, limit: float, *, at_least: bool = False, unit: str = "×") -> Target:
    return Target(family="windows", name=name, what=what, figure=figure, limit=limit, at_least=at_least, unit=unit)


def _speed(name: str, millions: float) -> Target:
    return _windows(name, "speed", speed(), millions, at_least=True, unit="M/s")


def _startup(name: str, side: str, limit: float) -> Target:
    return Target(family="startup", name=name, what=side, figure=seconds(side), limit=limit, unit="s")


def _checkpoint(side: str, limit: float, unit: str) -> Target:
    return Target(family="checkpoint", name=checkpoint.NAME, what=side, figure=seconds(side), limit=limit, unit=unit)


def _joins(name: str, what: str, figure: Figure, limit: float, *, at_least: bool = True, unit: str = "×") -> Target:
    return Target(family="joins", name=name, what=what, figure=figure, limit=limit, at_least=at_least, unit=unit)


def _cluster(name: str, what: str, figure: Figure, limit: float, *, at_least: bool = True, unit: str = "×") -> Target:
    return Target(family="cluster", name=name, what=what, figure=figure, limit=limit, at_least=at_least, unit=unit)


def _of_clusters() -> Iterator[Target]:
    yield _cluster(hopping.DAILY, "speed over Spark's window()", faster(hopping.WINDOW), 5)
    yield _cluster(hopping.HOURLY, "speed over Spark's window(), per row", faster(hopping.WINDOW), 100)
    yield _cluster(hopping.HOURLY, "speed over the best rewrite", faster(*hopping.REWRITES), 4)
    for name in big_data.SCANS.values():
        yield _cluster(name, "speed over Spark's, both collected", faster(sides.SPARK_COLLECTED), 1.5)
    for name in big_data.AGGREGATES.values():
        yield _cluster(name, "speed over Spark's, best plan", best_of(big_data.PLAN_SIDES, [sides.SPARK]), 2)
    for side in big_data.JOIN_SIDES:
        yield _cluster(big_data.JOIN, f"speed over Spark's, {side}", best_of([side], [sides.SPARK]), 2)
    for unit, name in tumbling.TUMBLING.items():
        figure = best_of(tumbling.SQUILL_SIDES, tumbling.SPARK_SIDES)
        yield _cluster(name, "speed over Spark's", figure, 4 if unit == "second" else 2)
    for name in (threads.SUM, threads.FOLLOWED, threads.INTERVALS, threads.JOIN):
        yield _cluster(name, "speed over one thread's", faster(threads.ONE), 1.7)
    moved = megabytes_per_core(exchange.FILES, exchange.MEGABYTES_PER_EVENT, spark_session.CORES)
    yield _cluster(exchange.MOVED, "over files, per core", moved, 500, unit="MB/s")
    yield _cluster(exchange.NOTHING, "time", seconds("squill"), 0.5, at_least=False, unit="s")
    yield _cluster(growth.NAME, "time over that of half the events", growth.of_doubling, 2.2, at_least=False)


def _live(name: str, what: str, figure: Figure, limit: float, unit: str, *, at_least: bool = False) -> Target:
    return Target(family="live", name=name, what=what, figure=figure, limit=limit, at_least=at_least, unit=unit)


def _progressive(name: str, what: str, figure: Figure, limit: float, unit: str = "×", *, at_least: bool) -> Target:
    return Target(family="progressive", name=name, what=what, figure=figure, limit=limit, at_least=at_least, unit=unit)


def _of_progressive_queries() -> Iterator[Target]:
    for query in progressive.NAMES:
        first = ratio(answers.ALL, of=answers.FIRST)
        for name in (query, query + progressive.LOCAL):
            yield _progressive(name, "first answer over the last", first, 0.1, at_least=False)
            yield _progressive(name, "100 answers over collect()", ratio(answers.COLLECT), 1.15, at_least=False)
        name = query + progressive.SPARK
        yield _progressive(name, "first answer over the last", first, 0.1, at_least=False)
        yield _progressive(name, "100 answers less 2 s over collect()", beyond_set_up, 1.15, at_least=False)
    yield _progressive(progressive.Q3, "speed over nothing forgotten", faster(answers.HOLDING), 5, at_least=True)
    yield _progressive(answers.PRECISION, answers.EARLY, seconds(answers.EARLY), 90, "%", at_least=True)
    yield _progressive(chunks.CHUNKS, "speed over a job for each chunk", faster(chunks.JOBS), 6, at_least=True)


def _of_live_queries() -> Iterator[Target]:
    yield _live(live.SUSTAINED, "speed", speed(), 2, "M/s", at_least=True)
    yield _live(live.SUSTAINED, "speed over Spark's, per row", faster(live.SPARK), 10, "×", at_least=True)
    yield _live(live.OVERHEAD, live.EPOCH, seconds(live.EPOCH), 1, "s")
    yield _live(live.OVERHEAD, live.EMPTY, seconds(live.EMPTY), 0.4, "s")
    yield _live(live.LARGE, live.ADDED, seconds(live.ADDED), 0.3, "s")
    yield _live(live.LARGE, live.STATE, seconds(live.STATE), 1_000, "MB", at_least=True)
    yield _live(live.DELAY_SPARK, live.MEDIAN, seconds(live.MEDIAN), 2, "s")
    yield _live(live.DELAY_SPARK, live.P99, seconds(live.P99), 4, "s")
    yield _live(live.DELAY_LOCAL, live.MEDIAN, seconds(live.MEDIAN), 0.02, "s")


def _pushes(side: str, millions: float) -> Iterator[Target]:
    for name in batches.PUSHES:
        yield Target(
            family="batches", name=name, what=side, figure=speed(side), limit=millions, at_least=True, unit="M/s"
        )


def _push(name: str, what: str, figure: Figure, limit: float, unit: str, *, at_least: bool = False) -> Target:
    return Target(family="push", name=name, what=what, figure=figure, limit=limit, at_least=at_least, unit=unit)


def _cuts(names: Sequence[str], limit: float) -> Iterator[Target]:
    what = "time over that of 1 M-row batches"
    for name in names:
        yield Target(family="batches", name=name, what=what, figure=ratio(batches.LARGE), limit=limit)


def _polars(family: str, names: Sequence[str], limit: float) -> Iterator[Target]:
    for name in names:
        yield Target(family=family, name=name, what="time over Polars'", figure=ratio(stateless.POLARS), limit=limit)


NATURAL = (polars_rewrites.NATURAL, polars_rewrites.EXPLODED)
PACKED = (polars_rewrites.PACKED, polars_rewrites.STREAMED)
TARGETS = (
    _speed(windows.HOURLY, 8),
    _windows(windows.HOURLY, "time over the bare loop's", ratio(bare_loop.BARE_LOOP), 2),
    _windows(windows.HOURLY, "speed over natural Polars", faster(*NATURAL), 3, at_least=True),
    _windows(windows.HOURLY, "time over packed Polars", ratio(*PACKED), 1.3),
    _speed(windows.MINUTELY, 5),
    _speed(windows.SEVERAL, 2),
    _speed(windows.STRINGS, 4),
    Target(family="patterns", name=patterns.SUMMED, what="speed", figure=speed(), limit=2, at_least=True, unit="M/s"),
    *_polars("stateless", [query.name for query in stateless.NUMERIC], 1.2),
    Target(
        family="stateless",
        name=stateless.PASS_THROUGH,
        what="added to the columns alone",
        figure=added_per_event(stateless.NO_OPERATOR),
        limit=1,
        unit="ns/event",
    ),
    *_polars("stateless", [query.name for query in stateless.STRINGS], 1.1),
    *_polars("relational", relational.NAMES, 1.3),
    *_polars("joins", [joins.ASOF], 1.5),
    _joins(interval_joins.FOLLOWED, "speed", speed(), 3, unit="M/s"),
    _joins(interval_joins.FOLLOWED, "speed over Spark's", faster(spark_sql.SPARK), 10),
    _joins(interval_joins.FOLLOWED, "speed over DuckDB's", faster(duck.DUCKDB), 1),
    _joins(interval_joins.FOLLOWED, "speed over Polars'", faster(stateless.POLARS), 1),
    _joins(interval_joins.NOT_FOLLOWED, "time over the join's", ratio(interval_joins.JOIN), 1.5, at_least=False),
    _joins(interval_joins.OVERLAP, "time over DuckDB's", ratio(duck.DUCKDB), 1.5, at_least=False),
    *_of_clusters(),
    *_of_live_queries(),
    *_of_progressive_queries(),
    *_cuts(list(batches.PLAIN_CUTS), 2),
    *_cuts(list(batches.FILTERED_CUTS), 4),
    *_pushes(batches.COALESCED, 1),
    *_pushes(batches.ALONE, 0.2),
    _push(push.STEADY, push.DELAY, seconds(push.DELAY), 10, "ms"),
    _push(push.STEADY, push.SUSTAINED, seconds(push.SUSTAINED), 190_000, "events/s", at_least=True),
    _push(push.FAST, push.FRAMES_OF_10_000, speed(push.FRAMES_OF_10_000), 5, "M/s", at_least=True),
    Target(
        family="memory",
        name=memory.NAME,
        what="highest memory later over early",
        figure=lambda outcome: Spread.of([outcome[memory.LATER].values[0] / outcome[memory.EARLY].values[0]]),
        limit=1.1,
    ),
    Target(
        family="checkpoint",
        name=checkpoint.NAME,
        what="rate over the disk's",
        figure=lambda outcome: outcome.ratio(checkpoint.WHOLE, of=checkpoint.DISK),
        limit=0.8,
        at_least=True,
    ),
    _checkpoint(checkpoint.TOUCHED, 0.3, "s"),
    _checkpoint(checkpoint.TOUCHED_BYTES, 30, "MB"),
    _startup(startup.IMPORT, startup.BEYOND, 0.2),
    _startup(startup.FIRST, startup.CACHED, 1.5),
    _startup(startup.FIRST, startup.EMPTY, 10),
    _startup(startup.UNSEEN, startup.NEW_AGGREGATE, 2.5),
    _startup(startup.UNSEEN, startup.NEW_KEYS, 2.5),
)
