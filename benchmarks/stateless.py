"""Operators without state: filters, projections, lifetimes, and the string predicates of the paper's Fig. 6(c).

Squill's answer has a start and an end for each row, so Polars is asked for the same rows; a second Polars side
leaves the ends out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.peers.bytewax_flows import bytewax_module, bytewax_side
from benchmarks.peers.duck import duckdb_side
from benchmarks.peers.temporian_side import temporian_side

__all__ = ["LIFETIME", "NO_OPERATOR", "NUMERIC", "PASS_THROUGH", "POLARS", "STRINGS", "experiments"]

FAMILY = "stateless"
SQUILL, SMALLER = "squill, 1 M-row batches", "squill, default batches"
POLARS, POLARS_NO_ENDS = "polars", "polars, no ends"
NO_OPERATOR = "squill, the columns alone"
PASS_THROUGH, LIFETIME = "project, columns passed through", "alter lifetime"
LARGE = 1_000_000
TICK = pl.duration(microseconds=1)
PAYLOAD = ("user", "ad_id", "x")

Build = Callable[[sq.Stream], sq.Stream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query in the words of each tool; `columns` are what it gives beside start and end."""

    name: str
    squill: Build
    predicate: pl.Expr | None = None
    columns: tuple[str | pl.Expr, ...] = PAYLOAD
    sql: str
    lifetime: pl.Expr = TICK
    sql_lifetime: str = "1 microsecond"

    def polars(self, frame: pl.DataFrame, *, ends: bool) -> pl.DataFrame:
        rows = frame.lazy()
        if self.predicate is not None:
            rows = rows.filter(self.predicate)
        end = [(pl.col("ts") + self.lifetime).alias("end")] if ends else []
        return rows.select(pl.col("ts").alias("start"), *end, *self.columns).collect()

    def duckdb(self) -> str:
        return self.sql.replace("TIMES", f"ts as start, ts + interval '{self.sql_lifetime}' as \"end\"")


X_DOUBLED = (sq.col("x") * 2.0 + 1.0).alias("y")
NUMERIC = (
    Query(
        name="filter, none match",
        squill=lambda s: s.where(sq.col("x") < 0),
        predicate=pl.col("x") < 0,
        sql="select TIMES, user, ad_id, x from events where x < 0",
    ),
    Query(
        name="filter, all match",
        squill=lambda s: s.where(sq.col("x") >= 0),
        predicate=pl.col("x") >= 0,
        sql="select TIMES, user, ad_id, x from events where x >= 0",
    ),
    Query(
        name="filter, half match",
        squill=lambda s: s.where(sq.col("x") >= 50),
        predicate=pl.col("x") >= 50,
        sql="select TIMES, user, ad_id, x from events where x >= 50",
    ),
    Query(
        name="project, a column computed",
        squill=lambda s: s.select("user", X_DOUBLED),
        columns=("user", X_DOUBLED),
        sql="select TIMES, user, x * 2 + 1 as y from events",
    ),
    Query(
        name=PASS_THROUGH,
        squill=lambda s: s.select("user", "x"),
        columns=("user", "x"),
        sql="select TIMES, user, x from events",
    ),
    Query(
        name=LIFETIME,
        squill=lambda s: s.with_duration("1h"),
        sql="select TIMES, user, ad_id, x from events",
        lifetime=pl.duration(hours=1),
        sql_lifetime="1 hour",
    ),
)


def _phrases(name: str, expression: pl.Expr, sql: str) -> Query:
    return Query(
        name=name,
        squill=lambda s: s.where(expression),
        predicate=expression,
        columns=("phrase",),
        sql=f"select TIMES, phrase from events where {sql}",
    )


PHRASE = sq.col("phrase")
OFFSET = PHRASE.str.find("vegas", literal=True).alias("at")
STRINGS = (
    _phrases('contains "free"', PHRASE.str.contains("free", literal=True), "contains(phrase, 'free')"),
    _phrases('equals "vegas"', PHRASE == "vegas", "phrase = 'vegas'"),
    _phrases('starts with "free"', PHRASE.str.starts_with("free"), "starts_with(phrase, 'free')"),
    _phrases('ends with "download"', PHRASE.str.ends_with("download"), "ends_with(phrase, 'download')"),
    _phrases('matches "%free%download%"', PHRASE.str.contains("free.*download"), "phrase like '%free%download%'"),
    Query(
        name='offset of "vegas"',
        squill=lambda s: s.select(OFFSET),
        columns=(OFFSET,),
        sql="select TIMES, nullif(strpos(phrase, 'vegas'), 0) - 1 as at from events",
    ),
)


def experiments() -> list[Experiment]:
    return [
        *(comparison(query, data.events, ("ts", *PAYLOAD), _slow_peers(query)) for query in NUMERIC),
        *(comparison(query, data.phrases, ("ts", "phrase"), ()) for query in STRINGS),
    ]


def comparison(
    query: Query, source: Callable[[int], pl.DataFrame], columns: tuple[str, ...], peers: tuple[Side, ...]
) -> Comparison:
    """Return the query asked of Squill, Polars, DuckDB and of those that are too slow for all events."""
    alone = (_squill(NO_OPERATOR, None, LARGE, query.columns),) if query.name == PASS_THROUGH else ()
    return Comparison(
        family=FAMILY,
        name=query.name,
        data=source,
        columns=columns,
        sides=(
            _squill(SQUILL, query.squill, LARGE),
            _squill(SMALLER, query.squill, None),
            *alone,
            Side(name=POLARS, prepare=lambda frame: lambda: query.polars(frame, ends=True)),
            Side(
                name=POLARS_NO_ENDS,
                prepare=lambda frame: lambda: query.polars(frame, ends=False),
                form=lambda rows: rows.drop("end"),
            ),
            duckdb_side(query.duckdb(), most_events=None),
            *peers,
        ),
    )


def _squill(name: str, build: Build | None, batch_rows: int | None, columns: tuple[Any, ...] = ()) -> Side:
    def prepare(frame: pl.DataFrame) -> Callable[[], pl.DataFrame]:
        given = frame.select("ts", *columns) if columns else frame

        def run() -> pl.DataFrame:
            stream = sq.from_frame(given, start="ts")
            return (build(stream) if build is not None else stream).collect(batch_rows=batch_rows)

        return run

    return Side(name=name, prepare=prepare, peer=False)


def _slow_peers(query: Query) -> tuple[Side, ...]:
    """Return Temporian and Bytewax where the query means something to them."""
    if query.name == LIFETIME:
        return ()
    if query.predicate is not None:
        least = {"filter, none match": 1e9, "filter, all match": 0.0}.get(query.name, 50.0)
        return (
            temporian_side({"name": "filter", "least": least}, form=lambda rows: rows.drop("end")),
            bytewax_side(lambda stream: _filtered(stream, least), lambda rows: _times(rows, PAYLOAD)),
        )
    if query.name == PASS_THROUGH:
        return ()
    return (
        temporian_side({"name": "project"}, form=lambda rows: rows.drop("end")),
        bytewax_side(_doubled, lambda rows: _times(rows, ("user", "y"))),
    )


def _filtered(stream: Any, least: float) -> Any:
    return bytewax_module("operators").filter("filter", stream, lambda row: row["x"] >= least)


def _doubled(stream: Any) -> Any:
    def doubled(row: dict[str, Any]) -> dict[str, Any]:
        return {"ts": row["ts"], "user": row["user"], "y": row["x"] * 2.0 + 1.0}

    return bytewax_module("operators").map("project", stream, doubled)


def _times(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pl.DataFrame:
    schema = {"ts": pl.Datetime("us")} | dict.fromkeys(columns)
    frame = pl.DataFrame(rows, schema=schema)
    return frame.select(pl.col("ts").alias("start"), (pl.col("ts") + TICK).alias("end"), *columns)
