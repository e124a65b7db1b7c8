"""Progressive queries over tables that are stored in the order of progress, in 100 steps."""

from __future__ import annotations

from functools import partial

import squill as sq
from benchmarks.harness import Experiment
from benchmarks.peers import spark_session
from benchmarks.progressive.answers import Answers, Precision
from benchmarks.progressive.chunks import Chunks
from benchmarks.progressive.queries import best_orders, click_through_rate, correlated_words
from benchmarks.progressive.tables import clicks_and_impressions, orders_and_lines, searches

__all__ = ["CTR", "LOCAL", "NAMES", "Q3", "SPARK", "WORDS", "experiments"]

CTR, Q3, WORDS = "click-through rate", "TPC-H query 3, by order", "correlated words, two stages"
LOCAL, SPARK = ", 2 threads", ", on Spark"
NAMES = (CTR, Q3, WORDS)


def experiments() -> list[Experiment]:
    found: list[Experiment] = []
    for suffix, where in (("", None), (LOCAL, partial(sq.local, cores=2)), (SPARK, spark_session.cluster_of)):
        found += [
            Answers(name=CTR + suffix, query=click_through_rate, data=clicks_and_impressions, times=80, where=where),
            Answers(
                name=Q3 + suffix, query=best_orders, data=orders_and_lines, times=20, where=where, forgets=where is None
            ),
            Answers(name=WORDS + suffix, query=correlated_words, data=searches, times=2, where=where),
        ]
    return [*found, Precision(searches, 2), Chunks()]
