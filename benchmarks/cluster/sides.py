"""How Squill and Spark are asked: tables are opened before, the query is built and run while it is timed.

Squill's answer is collected on the driver. Spark's rows are made and dropped where they are (`noop`), which spares it
much where most rows are the answer: scans also ask it to collect them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import polars as pl

import squill as sq
from benchmarks.harness import Run, Side, same
from benchmarks.peers import spark_session
from benchmarks.peers.spark_sql import SPARK, collected, dropped, naive, spark_rows

__all__ = ["SPARK", "SPARK_COLLECTED", "layout_name", "spark_query", "squill_plan"]

SPARK_COLLECTED = "spark sql, collected"
Tables = Callable[[sq.Cluster, Path], tuple[sq.ShardedStream, ...]]
Plan = Callable[..., sq.ShardedStream]
Files = Callable[[Path], Mapping[str, Path]]


def layout_name(machines: int, cores: int) -> str:
    return f"{machines} × {cores}"


def squill_plan(
    name: str, tables: Tables, plan: Plan, *, machines: int = 2, cores: int = 1, channel: str = "files"
) -> Side:
    """Return a plan on so many tasks of so many threads; `tables` opens what `plan` is a function of."""

    def prepare(folder: Path) -> Run:
        given = tables(_cluster(machines, cores, channel), folder)
        return lambda: plan(*given).collect()

    return Side(name=name, prepare=prepare, rows=naive, peer=False)


@cache
def _cluster(machines: int, cores: int, channel: str) -> sq.Cluster:
    return spark_session.cluster_of(machines, cores, channel)


def spark_query(
    sql: str,
    files: Files,
    name: str = SPARK,
    *,
    most_events: int | None = None,
    form: Callable[[pl.DataFrame], pl.DataFrame] = same,
) -> Side:
    """Return a query, in which {name} stands for a table of `files`."""
    prepare = partial(_prepared, collected if name == SPARK_COLLECTED else dropped, sql, files)
    return Side(name=name, prepare=prepare, rows=spark_rows, form=form, most_events=most_events)


def _prepared(run: Callable[..., Run], sql: str, files: Files, folder: Path) -> Run:
    session = spark_session.session()
    return run(sql, **{name: session.read.parquet(str(path)) for name, path in files(folder).items()})
