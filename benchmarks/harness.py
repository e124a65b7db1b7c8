"""How a comparison is measured: the same answer first, then all sides in turn, round after round.

A `Side` is one way to compute an answer, a `Comparison` several sides over the same generated data. Before
anything is timed every side answers a small input, and the rows must be those of the first side, Squill.
Then each round runs every side once, so that a slow minute of the machine hits all of them; ratios are taken
within a round and reported as their median, lowest and highest. A side may be given fewer events; it is then
compared by its time per event.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl
from polars.testing import assert_frame_equal

__all__ = [
    "Comparison", "DifferentAnswerError", "Experiment", "Measured", "Outcome", "Run", "Settings", "Side", "Spread",
    "assert_same_rows", "same", "timed",
]  # fmt: skip

Run = Callable[[], Any]
CHECK_EVENTS = 3_000
WARM_RUNS, WARM_SECONDS = 12, 5.0
"""Before it is timed a side runs so often, or for so long."""


class DifferentAnswerError(Exception):
    """A side gave other rows than Squill, so that its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How large, how often, and whether other tools are asked."""

    events: int
    runs: int
    peers: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several figures, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One side's figures, one for each round; `events` is None where there is no time per event."""

    name: str
    values: tuple[float, ...]
    events: int | None = None
    unit: str = "s"

    @property
    def spread(self) -> Spread:
        return Spread.of(self.values)

    @property
    def per_event(self) -> tuple[float, ...]:
        return tuple(value / (self.events or 1) for value in self.values)

    @property
    def events_per_second(self) -> Spread:
        return Spread.of([1 / value for value in self.per_event])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one experiment found; the first side is Squill."""

    family: str
    name: str
    measured: tuple[Measured, ...]
    missing: tuple[str, ...] = ()

    def __getitem__(self, side: str) -> Measured:
        return next(item for item in self.measured if item.name == side)

    def __contains__(self, side: object) -> bool:
        return any(item.name == side for item in self.measured)

    def ratio(self, side: str, of: str | None = None) -> Spread:
        """Return how many times as long as `side` the first side (or `of`) takes, per event, round by round."""
        first = self[of] if of is not None else self.measured[0]
        pairs = zip(first.per_event, self[side].per_event, strict=True)
        return Spread.of([mine / its for mine, its in pairs])


class Experiment(Protocol):
    """Something that can be measured, after a check that it gives the right answer."""

    @property
    def family(self) -> str: ...
    @property
    def name(self) -> str: ...
    def check(self, settings: Settings) -> None:
        """Raise `DifferentAnswerError` when the sides disagree."""

    def measure(self, settings: Settings) -> Outcome: ...


def same(value: Any) -> Any:
    """Return what is given: an answer that needs no change before it is compared."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to compute the answer.

    `prepare(input)` does what is not timed and returns the function that is. `rows` turns its answer into a
    frame, untimed. `form` turns Squill's rows into what this side gives, say one row per window. A peer says in
    `missing` why it cannot run here. One that answers the same several times at once says so in `copies`.
    """

    name: str
    prepare: Callable[[Any], Run]
    rows: Callable[[Any], pl.DataFrame] = same
    form: Callable[[pl.DataFrame], pl.DataFrame] = same
    most_events: int | None = None
    peer: bool = True
    missing: str | None = None
    copies: int = 1

    def events(self, given: int) -> int:
        return given if self.most_events is None else min(given, self.most_events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several sides over one kind of data; the first is Squill.

    ``data``   the input of so many events: a frame, or whatever the sides' `prepare` takes.
    ``times``  how many events there are for each of the `settings`.
    """

    family: str
    name: str
    data: Callable[[int], Any]
    sides: tuple[Side, ...]
    check_events: int = CHECK_EVENTS
    columns: tuple[str, ...] = field(default=())
    times: int = 1

    def check(self, settings: Settings) -> None:
        frame = self._input(self.check_events)
        expected: pl.DataFrame | None = None
        for side in self._present(settings):
            found = side.rows(side.prepare(frame)())
            if expected is None:
                expected = found
            assert_same_rows(side.form(expected), found, f"{self.family}, {self.name}: {side.name}")

    def measure(self, settings: Settings) -> Outcome:
        sides = self._present(settings)
        events = settings.events * self.times
        inputs = {n: self._input(n) for n in {side.events(events) for side in sides}}
        runs = [side.prepare(inputs[side.events(events)]) for side in sides]
        for run in runs:
            warm_up(run)
        rounds = [[timed(run) for run in runs] for _ in range(settings.runs)]
        measured = [
            Measured(name=side.name, values=values, events=side.events(events) * side.copies)
            for side, values in zip(sides, zip(*rounds, strict=True), strict=True)
        ]
        missing = tuple(f"{side.name}: {side.missing}" for side in self.sides if side.missing and settings.peers)
        return Outcome(family=self.family, name=self.name, measured=tuple(measured), missing=missing)

    def _input(self, n: int) -> Any:
        given = self.data(n)
        return given.select(self.columns) if self.columns else given

    def _present(self, settings: Settings) -> list[Side]:
        return [side for side in self.sides if not side.missing and (settings.peers or not side.peer)]


def warm_up(run: Run) -> None:
    """Run until it is quick: Java compiles what has run often, and a short job then takes a fifth less time."""
    until = time.perf_counter() + WARM_SECONDS
    for _ in range(WARM_RUNS):
        run()
        if time.perf_counter() > until:
            return


def timed(run: Run) -> float:
    """Return how long one run takes; freeing its answer is not counted."""
    gc.collect()
    began = time.perf_counter()
    answer = run()
    seconds = time.perf_counter() - began
    del answer
    return seconds


def assert_same_rows(expected: pl.DataFrame, found: pl.DataFrame, what: str) -> None:
    """Raise unless both hold the same rows, in whatever order; types may differ in width."""
    if set(expected.columns) != set(found.columns):
        raise DifferentAnswerError(f"{what} gives the columns {found.columns}, not {expected.columns}")
    found = found.select(pl.col(name).cast(dtype) for name, dtype in expected.schema.items())
    order = expected.columns
    try:
        assert_frame_equal(expected.sort(order), found.sort(order), rel_tol=1e-9, abs_tol=1e-9)
    except AssertionError as error:
        raise DifferentAnswerError(f"{what} gives other rows than squill\n{error}") from error
