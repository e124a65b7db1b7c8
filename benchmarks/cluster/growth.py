"""Whether twice the data takes twice the time: the hopping count over ten times the events, and parts of these.

The users are the same in all sizes: more of them would be another query, with a larger state.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from benchmarks import data
from benchmarks.cluster import hopping, tables
from benchmarks.cluster.sides import squill_plan
from benchmarks.harness import Experiment, Measured, Outcome, Settings, Spread, timed
from benchmarks.hopping import Hopping

__all__ = ["NAME", "experiments", "of_doubling"]

NAME = "hopping count of more and more events"
TIMES, PARTS = 10, (8, 4, 2, 1)
QUERY = Hopping(size=timedelta(days=7), hop=timedelta(hours=1), key="user")
SIDE = squill_plan("squill", hopping.opened, lambda clicks: hopping.counts(clicks, QUERY))


@dataclass(frozen=True, slots=True)
class Growth:
    """One plan over inputs of several sizes, in turn."""

    family: str = hopping.FAMILY
    name: str = NAME

    def check(self, settings: Settings) -> None:
        """The hopping count is checked where it is compared."""

    def measure(self, settings: Settings) -> Outcome:
        sizes = [settings.events * TIMES // part for part in PARTS]
        runs = [SIDE.prepare(tables.clicks(size, data.USERS)) for size in sizes]
        for run in runs:
            run()
        rounds = [[timed(run) for run in runs] for _ in range(settings.runs)]
        measured = tuple(
            Measured(name=f"1 / {part}", values=values, events=size)
            for part, size, values in zip(PARTS, sizes, zip(*rounds, strict=True), strict=True)
        )
        return Outcome(family=self.family, name=self.name, measured=measured)


def experiments() -> list[Experiment]:
    return [Growth()]


def of_doubling(outcome: Outcome) -> Spread:
    """Return how many times as long the doubled input takes, at the worse of the doublings."""
    pairs = zip(outcome.measured, outcome.measured[1:], strict=False)
    ratios = [[later / before for before, later in zip(one.values, two.values, strict=True)] for one, two in pairs]
    return max((Spread.of(values) for values in ratios), key=lambda spread: spread.median)
