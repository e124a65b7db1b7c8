"""What a second core brings: two threads beside one, each in a process of its own with as many Polars threads."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import polars as pl

from benchmarks.cluster import big_data, tables
from benchmarks.cluster.hopping import FAMILY
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.asked_process import AskedProcess

__all__ = ["JOIN", "ONE", "SUM", "experiments"]

SUM = "local threads: per-key sum, 1 h / 10 min"
JOIN = "local threads: the join"
TWO, ONE = "2 threads", "1 thread"
ROOT = Path(__file__).resolve().parents[2]


def experiments() -> list[Experiment]:
    sides = {
        query: tuple(_side(name, query, cores) for name, cores in ((TWO, 2), (ONE, 1))) for query in ("sum", "join")
    }
    return [
        Comparison(family=FAMILY, name=SUM, data=tables.clicks, sides=sides["sum"]),
        Comparison(
            family=FAMILY,
            name=JOIN,
            data=tables.visits_and_rankings,
            sides=sides["join"],
            times=big_data.VISITS_PER_EVENT,
        ),
    ]


def _side(name: str, query: str, cores: int) -> Side:
    return Side(name=name, prepare=partial(Worker, query, cores), rows=lambda worker: worker.rows(), peer=False)


class Worker:
    """A process that has one query over one folder; called, it runs it once and returns itself."""

    def __init__(self, query: str, cores: int, folder: Path) -> None:
        self._process = AskedProcess(
            [sys.executable, "-m", "benchmarks.cluster.thread_worker", query, str(cores), str(folder)],
            tempfile.TemporaryDirectory(prefix="squill-bench-"),
            cwd=ROOT,
            env=os.environ | {"POLARS_MAX_THREADS": str(cores)},
        )

    def __call__(self) -> Worker:
        self._process.ask("run")
        return self

    def rows(self) -> pl.DataFrame:
        """Return the last answer."""
        path = self._process.folder / "answer.arrow"
        self._process.ask(f"write {path}")
        return pl.read_ipc(path.read_bytes())
