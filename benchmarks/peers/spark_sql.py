"""Spark SQL in this process, on two cores: a query over the cached table `events`, counted where it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from benchmarks.harness import Side
from benchmarks.peers import spark_session

__all__ = ["SPARK", "spark_side"]

SPARK = "spark sql"


def spark_side(sql: str, *, most_events: int | None = 1_000_000) -> Side:
    """Return a query; its rows are made but, as is fair to Spark, not brought to Python while it is timed."""
    return Side(name=SPARK, prepare=lambda frame: _prepare(frame, sql), rows=_rows, most_events=most_events)


def _prepare(frame: pl.DataFrame, sql: str) -> Callable[[], Any]:
    session = spark_session.session()
    session.catalog.clearCache()
    session.createDataFrame(frame.to_arrow()).cache().createOrReplaceTempView("events")
    session.sql("select count(*) from events").collect()

    def run() -> Any:
        answer = session.sql(sql)
        answer.write.format("noop").mode("overwrite").save()
        return answer

    return run


def _rows(answer: Any) -> pl.DataFrame:
    frame = pl.from_arrow(answer.toArrow())
    assert isinstance(frame, pl.DataFrame)
    # Spark's timestamps carry the session's zone.
    naive = {
        name: pl.col(name).dt.replace_time_zone(None) for name, dtype in frame.schema.items() if dtype == pl.Datetime
    }
    return frame.with_columns(**naive)
