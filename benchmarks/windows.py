"""Windowed aggregates: the Trill paper's two, and per-key hopping windows of seven days."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

import squill as sq
from benchmarks import data
from benchmarks.bare_loop import bare_loop_side
from benchmarks.harness import Comparison, Experiment, Side
from benchmarks.hopping import Hopping, lifetimes_per_window, squill_rows
from benchmarks.peers.bytewax_flows import bytewax_hopping
from benchmarks.peers.duck import duckdb_hopping
from benchmarks.peers.polars_rewrites import COPIED_ROWS, EXPLODED, polars_sides
from benchmarks.peers.temporian_side import temporian_hopping

__all__ = ["HOURLY", "MINUTELY", "SEVERAL", "SQUILL", "STRINGS", "experiments"]

FAMILY = "windows"
SQUILL = "squill"
HOURLY = "per-key hopping count, 7 d / 1 h"
MINUTELY = "per-key hopping count, 7 d / 1 min"
SEVERAL = "per-key count, min, max and percentile, 7 d / 1 h"
STRINGS = "per-key hopping count, 7 d / 1 h, string keys"

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)


def experiments() -> list[Experiment]:
    minutes = timedelta(minutes=10)
    return [
        hopping("windowed count, 1 h / 10 min", Hopping(size=HOUR, hop=minutes)),
        hopping("grouped windowed sum, 1 h / 10 min", Hopping(size=HOUR, hop=minutes, key="user", value="x")),
        hopping(HOURLY, Hopping(size=WEEK, hop=HOUR, key="user")),
        hopping(MINUTELY, Hopping(size=WEEK, hop=timedelta(minutes=1), key="user"), check_events=300),
        hopping(STRINGS, Hopping(size=WEEK, hop=HOUR, key="user_name")),
        several(),
    ]


def hopping(name: str, query: Hopping, *, check_events: int = 3_000) -> Comparison:
    """Return one window asked of everybody who can express it; the bare loop counts integer keys only."""
    sides = [
        Side(name=SQUILL, prepare=lambda frame: lambda: squill_rows(query, frame), peer=False),
        bare_loop_side(query) if query.key == "user" and query.value is None else None,
        *polars_sides(query),
        duckdb_hopping(query),
        temporian_hopping(query),
        bytewax_hopping(query),
    ]
    columns = ["ts", *query.keys, *([] if query.value is None else [query.value])]
    return Comparison(
        family=FAMILY,
        name=name,
        data=data.events,
        columns=tuple(columns),
        sides=tuple(side for side in sides if side is not None),
        check_events=check_events,
    )


def several() -> Comparison:
    """Return aggregates that no running sum can give; Polars must copy every event into its windows."""
    return Comparison(
        family=FAMILY,
        name=SEVERAL,
        data=data.events,
        columns=("ts", "user", "x"),
        sides=(
            Side(name=SQUILL, prepare=lambda frame: lambda: squill_several(frame), peer=False),
            Side(
                name=EXPLODED,
                prepare=lambda frame: lambda: polars_several(frame),
                form=lambda rows: lifetimes_per_window(rows, HOUR),
                most_events=COPIED_ROWS // (WEEK // HOUR),
            ),
        ),
    )


def squill_several(frame: pl.DataFrame) -> pl.DataFrame:
    aggregates = {
        "n": sq.count(),
        "low": sq.min("x"),
        "high": sq.max("x"),
        "p90": sq.percentile("x", 0.9),
    }
    windows = sq.from_frame(frame, start="ts").group_apply(
        "user", lambda g: g.hopping_window(WEEK, HOUR).aggregate(**aggregates)
    )
    return windows.collect()


def polars_several(frame: pl.DataFrame) -> pl.DataFrame:
    first = pl.col("ts").dt.truncate("1h") + HOUR
    windows = pl.datetime_ranges(first, first + WEEK, HOUR, closed="left").alias("window_end")
    x = pl.col("x")
    aggregates = {"n": pl.len(), "low": x.min(), "high": x.max(), "p90": x.quantile(0.9, "linear")}
    exploded = frame.lazy().select("user", "x", windows).explode("window_end")
    return exploded.group_by("user", "window_end").agg(**aggregates).collect()
