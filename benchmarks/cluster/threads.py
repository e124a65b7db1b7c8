"""What a second core brings: two threads beside one, each in a process of its own with as many Polars threads.

The sum is that of the family `windows`, over a frame in memory. Read from files it has no target: Polars decodes
parquet on a thread of its own, so that one thread has a second core at work too, a fifth of its time. There are three
joins: the Trill paper's (section 7.2.2), of what a user does with what he does within the hour after it, and one of
clicks with the sessions that they fall into, both over frames; and one of relations that are read from files, which is
most of its time. Over frames, without a target, that one shows what is Squill's own.

Two processes of one thread, which have nothing to do with each other and answer the same query at once, show what the
machine allows: they share its memory. So do, for the sum, two threads of one process of which each answers for half
of the time: no row goes from one to the other, and nothing is merged.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import polars as pl

from benchmarks.cluster import big_data, tables
from benchmarks.cluster.hopping import FAMILY
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.asked_process import AskedProcess

__all__ = [
    "APART", "FOLLOWED", "HALVES", "INTERVALS", "JOIN", "JOIN_OF_FRAMES", "ONE", "SUM", "SUM_OF_FILES", "TWO",
    "experiments",
]  # fmt: skip

SUM = "local threads: grouped windowed sum, 1 h / 10 min"
SUM_OF_FILES = "local threads: that sum, read from files"
FOLLOWED = "local threads: clicks of set A followed by set B within 1 h"
INTERVALS = "local threads: join of clicks with sessions"
JOIN = "local threads: the join of the Big Data Benchmark"
JOIN_OF_FRAMES = "local threads: that join, over frames"
TWO, ONE, APART = "2 threads", "1 thread", "2 × 1 thread, apart"
HALVES = "2 threads, half of the time each"
ROOT = Path(__file__).resolve().parents[2]


def experiments() -> list[Experiment]:
    sides = {
        query: (_side(TWO, query, cores=2), _side(ONE, query, cores=1), _side(APART, query, cores=1, copies=2))
        for query in ("sum", "sum of files", "followed", "join of intervals", "join", "join of frames")
    }
    return [
        Comparison(
            family=FAMILY, name=SUM, data=tables.clicks, sides=(*sides["sum"], _side(HALVES, "sum by halves", cores=2))
        ),
        Comparison(family=FAMILY, name=SUM_OF_FILES, data=tables.clicks, sides=sides["sum of files"]),
        Comparison(family=FAMILY, name=FOLLOWED, data=tables.clicks_and_sessions, sides=sides["followed"]),
        Comparison(family=FAMILY, name=INTERVALS, data=tables.clicks_and_sessions, sides=sides["join of intervals"]),
        *(
            Comparison(
                family=FAMILY,
                name=name,
                data=tables.visits_and_rankings,
                sides=sides[query],
                times=big_data.VISITS_PER_EVENT,
            )
            for name, query in ((JOIN, "join"), (JOIN_OF_FRAMES, "join of frames"))
        ),
    ]


def _side(name: str, query: str, *, cores: int, copies: int = 1) -> Side:
    prepare = partial(Workers, query, cores, copies)
    return Side(name=name, prepare=prepare, rows=lambda workers: workers.rows(), peer=False, copies=copies)


class Workers:
    """Processes that each have one query over one folder; called, they run it once, all at once."""

    def __init__(self, query: str, cores: int, copies: int, folder: Path) -> None:
        self._processes = [
            AskedProcess(
                [sys.executable, "-m", "benchmarks.cluster.thread_worker", query, str(cores), str(folder)],
                tempfile.TemporaryDirectory(prefix="squill-bench-"),
                cwd=ROOT,
                env=os.environ | {"POLARS_MAX_THREADS": str(cores)},
            )
            for _ in range(copies)
        ]

    def __call__(self) -> Workers:
        with ThreadPoolExecutor(len(self._processes)) as asking:
            list(asking.map(lambda process: process.ask("run"), self._processes))
        return self

    def rows(self) -> pl.DataFrame:
        """Return the last answer, of any of them."""
        process = self._processes[-1]
        path = process.folder / "answer.arrow"
        process.ask(f"write {path}")
        return pl.read_ipc(path.read_bytes())
