"""Progressive queries over tables that are stored in the order of progress, in 100 steps."""

from __future__ import annotations

from benchmarks.harness import Experiment
from benchmarks.progressive.answers import Answers, Precision
from benchmarks.progressive.chunks import Chunks
from benchmarks.progressive.queries import best_orders, click_through_rate, correlated_words
from benchmarks.progressive.tables import clicks_and_impressions, orders_and_lines, searches

__all__ = ["CTR", "LOCAL", "NAMES", "Q3", "WORDS", "experiments"]

CTR, Q3, WORDS = "click-through rate", "TPC-H query 3, by order", "correlated words, two stages"
LOCAL = ", 2 threads"
NAMES = (CTR, Q3, WORDS)


def experiments() -> list[Experiment]:
    found: list[Experiment] = []
    for suffix, cores in (("", None), (LOCAL, 2)):
        found += [
            Answers(name=CTR + suffix, query=click_through_rate, data=clicks_and_impressions, times=10, cores=cores),
            Answers(
                name=Q3 + suffix, query=best_orders, data=orders_and_lines, times=3, cores=cores, forgets=cores is None
            ),
            Answers(name=WORDS + suffix, query=correlated_words, data=searches, times=2, cores=cores),
        ]
    return [*found, Precision(searches, 2), Chunks()]
