"""DuckDB on one thread: SQL over a table of its own, the answer taken as Arrow."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import polars as pl

from benchmarks.harness import Side
from benchmarks.hopping import Hopping

__all__ = ["DUCKDB", "duckdb_hopping", "duckdb_side"]

DUCKDB = "duckdb"


def duckdb_side(sql: str, *, most_events: int | None = 2_000_000) -> Side:
    """Return a query over the table `events`."""
    missing = None if find_spec("duckdb") else "not installed"
    return Side(
        name=DUCKDB, prepare=lambda frame: _prepare(frame, sql), rows=_rows, most_events=most_events, missing=missing
    )


def _prepare(frame: pl.DataFrame, sql: str) -> Callable[[], Any]:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", frame.to_arrow())
    connection.execute("create table events as select * from given")
    return lambda: connection.sql(sql).to_arrow_table()


def _rows(table: Any) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def duckdb_hopping(query: Hopping) -> Side:
    """Return a hopping window as a running sum of what enters and leaves at each hop."""
    key = "".join(f'"{name}", ' for name in query.keys)
    partition = f"partition by {key.rstrip(', ')}" if query.key is not None else ""
    value = query.value or "0"
    result = "n" if query.value is None else "s"
    return duckdb_side(f"""
        with deltas as (
            select {key} epoch_us(ts) // {query.hop_us} + 1 as hop, 1 as count, {value} as x from events
            union all
            select {key} epoch_us(ts) // {query.hop_us} + 1 + {query.copies}, -1, -{value} from events
        ), changes as (
            select {key} hop, sum(count)::bigint as count, sum(x) as x from deltas group by all
        ), running as (
            select {key} hop, lead(hop) over ordered as until, sum(count) over ordered as n, sum(x) over ordered as s
            from changes window ordered as ({partition} order by hop)
        )
        select make_timestamp(hop * {query.hop_us}) as start, make_timestamp(until * {query.hop_us}) as "end",
            {key} {result} from running where n > 0
    """)
