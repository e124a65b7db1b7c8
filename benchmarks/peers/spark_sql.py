"""Spark SQL in this process, on two cores: a query over the cached table `events`, counted where it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from benchmarks.harness import Side
from benchmarks.peers import spark_session

__all__ = ["SPARK", "collected", "dropped", "naive", "spark_rows", "spark_side"]

SPARK = "spark sql"


def spark_side(sql: str, *, most_events: int | None = 1_000_000) -> Side:
    """Return a query; its rows are made but, as is fair to Spark, not brought to Python while it is timed."""
    return Side(name=SPARK, prepare=lambda frame: _prepare(frame, sql), rows=spark_rows, most_events=most_events)


def _prepare(frame: pl.DataFrame, sql: str) -> Callable[[], Any]:
    session = spark_session.session()
    session.catalog.clearCache()
    session.createDataFrame(frame.to_arrow()).cache().createOrReplaceTempView("events")
    session.sql("select count(*) from events").collect()

    return dropped(sql)


def dropped(sql: str, **tables: Any) -> Callable[[], Any]:
    """Return what runs the query, in which {name} stands for a table, and drops its rows where they are made."""
    session = spark_session.session()

    def run() -> Any:
        answer = session.sql(sql, **tables)
        answer.write.format("noop").mode("overwrite").save()
        return answer

    return run


def collected(sql: str, **tables: Any) -> Callable[[], Any]:
    """Return what runs the query as `dropped` does, but brings its rows to Python in Spark's fastest way."""
    session = spark_session.session()
    return lambda: session.sql(sql, **tables).toArrow()


def spark_rows(answer: Any) -> pl.DataFrame:
    """Return the rows of an answer, collected or not."""
    frame = pl.from_arrow(answer if isinstance(answer, pa.Table) else answer.toArrow())
    assert isinstance(frame, pl.DataFrame)
    return naive(frame)


def naive(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with times in UTC that do not say so; Spark's timestamps carry the session's zone."""
    times = [name for name, dtype in frame.schema.items() if dtype == pl.Datetime]
    return frame.with_columns(pl.col(times).dt.convert_time_zone("UTC").dt.replace_time_zone(None)) if times else frame
