"""How soon the first of 100 answers is there, and what all of them cost beside the one that collect() gives."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import polars as pl

import squill as sq
from benchmarks.harness import Measured, Outcome, Settings, assert_same_rows, timed
from benchmarks.progressive.queries import BEST, correlated_words, dimensions

__all__ = ["ALL", "COLLECT", "EARLY", "FAMILY", "FIRST", "HOLDING", "PRECISION", "Answers", "Precision", "last_answer"]

FAMILY = "progressive"
ALL, FIRST, COLLECT, HOLDING = "100 answers", "the first answer", "collect()", "100 answers, nothing forgotten"
PRECISION, EARLY = "top 100 words", "right at 20 % of the rows"
CHECK_ROWS = 20_000


@contextmanager
def nothing_forgotten() -> Iterator[None]:
    """Let operators hold the rows of past steps."""
    with patch("squill.runtime.progressive.start.forget_past_steps", lambda plan: plan):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A query over tables in the order of progress; `times` is how many rows they have for each of the settings.

    ``where``    on what it runs; None is in this process.
    ``forgets``  whether it is also run with all rows held.
    """

    name: str
    query: Callable[[Path], sq.Stream]
    data: Callable[[int], Path]
    times: int
    where: Callable[[], sq.Cluster] | None = None
    forgets: bool = False
    family: str = FAMILY

    def check(self, settings: Settings) -> None:
        query = self.query(self.data(CHECK_ROWS))
        with self._cluster() as cluster:
            last = last_answer(query, cluster)
        assert_same_rows(query.collect(), last, f"{self.family}, {self.name}: the last answer")

    def measure(self, settings: Settings) -> Outcome:
        rows = settings.events * self.times
        query = self.query(self.data(rows))
        with self._cluster() as cluster:
            last_answer(query, cluster)
            rounds = [self._round(query, cluster, number) for number in range(settings.runs)]
        names = (ALL, FIRST, COLLECT, *((HOLDING,) if self.forgets else ()))
        figures = zip(names, zip(*rounds, strict=True), strict=True)
        measured = tuple(Measured(name=name, values=values, events=rows) for name, values in figures)
        return Outcome(family=self.family, name=self.name, measured=measured)

    def _round(self, query: sq.Stream, cluster: sq.Cluster | None, number: int) -> list[float]:
        """Who comes second finds memory that the first has just freed, so they come first in turn."""

        def collected() -> float:
            return timed(lambda: query.collect() if cluster is None else query.collect(on=cluster))

        if number % 2:
            alone = collected()
            first, total = _early(query, cluster)
        else:
            first, total = _early(query, cluster)
            alone = collected()
        found = [total, first, alone]
        if self.forgets:
            with nothing_forgotten():
                found.append(_early(query, cluster)[1])
        return found

    def _cluster(self) -> nullcontext[None] | sq.Cluster:
        return nullcontext() if self.where is None else self.where()


def _early(query: sq.Stream, cluster: sq.Cluster | None) -> tuple[float, float]:
    """Return how long the first answer takes, and all of them."""
    gc.collect()
    began = time.perf_counter()
    first = 0.0
    for early in query.progressive(dimensions(query), on=cluster):
        first = first or time.perf_counter() - began
        del early
    return first, time.perf_counter() - began


def last_answer(query: sq.Stream, cluster: sq.Cluster | None) -> pl.DataFrame:
    frame = pl.DataFrame()
    for early in query.progressive(dimensions(query), on=cluster):
        if early.is_final:
            frame = early.frame
    return frame


@dataclass(frozen=True, slots=True)
class Precision:
    """How many of the best words of the answer at a fifth of the rows are among the best of all."""

    data: Callable[[int], Path]
    times: int
    family: str = FAMILY
    name: str = PRECISION

    def check(self, settings: Settings) -> None:
        self._found(CHECK_ROWS)

    def measure(self, settings: Settings) -> Outcome:
        share = self._found(settings.events * self.times)
        return Outcome(family=self.family, name=self.name, measured=(Measured(name=EARLY, values=(share,), unit="%"),))

    def _found(self, rows: int) -> float:
        early: set[int] = set()
        last: set[int] = set()
        for answer in correlated_words(self.data(rows)).progressive():
            if answer.fraction <= 0.2 or answer.is_final:
                early, last = (last, _words(answer.frame)) if answer.is_final else (early, _words(answer.frame))
        return 100 * len(early & last) / BEST


def _words(frame: pl.DataFrame) -> set[int]:
    return {row["word"] for row in frame["best"][0]} if frame.height else set()
