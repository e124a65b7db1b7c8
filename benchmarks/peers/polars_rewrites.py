"""Hopping windows written in Polars, which has none that keep every window of every key.

(`group_by_dynamic` leaves out the windows that begin before a key's first event: another answer.)
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from benchmarks.harness import Side
from benchmarks.hopping import Hopping

__all__ = ["EXPLODED", "NATURAL", "PACKED", "STREAMED", "polars_sides"]

EXPLODED = "polars, a row per window"
NATURAL = "polars, running sum of +1/-1"
PACKED = "polars, packed integers"
STREAMED = "polars, packed integers, streaming"

# Key and hop share one integer: 20 bits of hops after the data's beginning, the key above them.
HOP_BITS = 20
COPIED_ROWS = 5_000_000

Engine = Literal["in-memory", "streaming"]


def polars_sides(query: Hopping) -> tuple[Side, ...]:
    """Return the natural rewrites, and the fastest that is known, on both engines of Polars."""
    return (
        Side(name=NATURAL, prepare=lambda frame: lambda: natural(query, frame)),
        Side(name=PACKED, prepare=lambda frame: lambda: packed(query, frame, "in-memory")),
        Side(name=STREAMED, prepare=lambda frame: lambda: packed(query, frame, "streaming")),
        Side(
            name=EXPLODED,
            prepare=lambda frame: lambda: exploded(query, frame),
            form=query.per_window,
            most_events=COPIED_ROWS // query.copies,
        ),
    )


def natural(query: Hopping, frame: pl.DataFrame) -> pl.DataFrame:
    """Add each event where it enters and take it away where it leaves, with columns that mean what they say."""
    start = pl.col("ts").dt.truncate(query.hop) + query.hop
    value = pl.col(query.value) if query.value is not None else pl.lit(0.0)
    entering = frame.lazy().select(*query.keys, start.alias("start"), count=1, s=value)
    leaving = frame.lazy().select(*query.keys, (start + query.size).alias("start"), count=-1, s=-value)
    changes = pl.concat([entering, leaving]).group_by(*query.keys, "start").agg(pl.col("count", "s").sum())
    running = {"n": pl.col("count").cum_sum(), "s": pl.col("s").cum_sum(), "end": pl.col("start").shift(-1)}
    if query.key is not None:
        running = {name: expr.over(query.key) for name, expr in running.items()}
    return (
        changes.sort(*query.keys, "start").with_columns(**running).filter(pl.col("n") > 0).select(query.rows).collect()
    )


def packed(query: Hopping, frame: pl.DataFrame, engine: Engine) -> pl.DataFrame:
    """Do the same on one integer per row, so that grouping and sorting touch one column."""
    begin = frame["ts"][0].replace(minute=0, second=0, microsecond=0)
    hop = (pl.col("ts") - begin).dt.total_microseconds() // query.hop_us + 1
    entered = hop if query.key is None else _key_number(query.key, frame) * 2**HOP_BITS + hop
    deltas = {"n": (pl.lit(1), pl.lit(-1))}
    if query.value is not None:
        deltas["s"] = (pl.col(query.value), -pl.col(query.value))
    parts = [
        frame.lazy().select(p=entered, **{name: pair[0] for name, pair in deltas.items()}),
        frame.lazy().select(p=entered + query.copies, **{name: pair[1] for name, pair in deltas.items()}),
    ]
    start = (pl.col("p") % 2**HOP_BITS * query.hop_us).cast(pl.Duration("us")) + pl.lit(begin)
    rows = (
        pl.concat(parts)
        .group_by("p")
        .agg(pl.col(*deltas).sum())
        .sort("p")
        .with_columns(pl.col(*deltas).cum_sum(), start=start)
        .with_columns(end=pl.col("start").shift(-1))
        .filter(pl.col("n") > 0)
    )
    key = [] if query.key is None else [_key_back(query.key, frame)]
    return rows.with_columns(key).select(query.rows).collect(engine=engine)


def _key_number(key: str, frame: pl.DataFrame) -> pl.Expr:
    if frame.schema[key].is_integer():
        return pl.col(key)
    return pl.col(key).cast(pl.Categorical).to_physical().cast(pl.Int64)


def _key_back(key: str, frame: pl.DataFrame) -> pl.Expr:
    number = pl.col("p") // 2**HOP_BITS
    if frame.schema[key].is_integer():
        return number.alias(key)
    return number.cast(pl.UInt32).cat.to(pl.Categorical).cast(pl.String).alias(key)


def exploded(query: Hopping, frame: pl.DataFrame) -> pl.DataFrame:
    """Give every event a row for each of its windows, then group."""
    first = pl.col("ts").dt.truncate(query.hop) + query.hop
    windows = pl.datetime_ranges(first, first + query.size, query.hop, closed="left")
    answer = pl.len().alias("n") if query.value is None else pl.col(query.value).sum().alias("s")
    columns = [*query.keys, *([] if query.value is None else [query.value])]
    return (
        frame.lazy()
        .select(*columns, windows.alias("window_end"))
        .explode("window_end")
        .group_by(*query.keys, "window_end")
        .agg(answer)
        .collect()
    )
