"""Queries by key, of every kind of operator that keeps something, over rows (k, x) with lifetimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import polars as pl

import squill as sq
from squill.stream import Stream

__all__ = ["KEYED"]

TEXT = sq.col("x").cast(pl.String)
PAIR = sq.pattern.seq(
    sq.pattern.one(sq.col("x") < 4, a="x", b=TEXT), sq.pattern.star(sq.pattern.one(sq.col("x") != 4, c="x"))
)


class Counting:
    """Base of the operators here: one number is all that they keep."""

    schema: ClassVar[dict[str, Any]] = {"n": pl.Int64}

    def __init__(self) -> None:
        self.n = 0

    def save(self) -> int:
        return self.n

    def load(self, state: int) -> None:
        self.n = state


class Running(Counting):
    """The sum so far, five ticks after each instant with rows, for as long as the next one takes."""

    lifetime = "until_next"
    wake_at: int | None = None

    def on_instant(self, t: int, starts: pl.DataFrame) -> None:
        self.n += sum(starts["x"].to_list())
        self.wake_at = t + 5

    def on_time(self, t: int) -> dict[str, int]:
        return {"n": self.n}


class Alive(Counting):
    """How many rows are alive, as intervals that begin later."""

    lifetime = "interval"

    def on_instant(self, t: int, starts: pl.DataFrame, ends: pl.DataFrame) -> dict[str, int]:
        self.n += len(starts) - len(ends)
        return {"n": self.n, "start": t + 2, "end": t + 7}


def largest(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(m=pl.col("x").max(), n=pl.len().cast(pl.Int64))


def longest() -> Any:
    """Return an aggregate that runs as plain Python: the text of most letters, and how many there were."""
    return sq.aggregate_fn(
        [TEXT], init=lambda: (), accumulate=lambda s, t, x: (*s, x), deaccumulate=_without,
        result=lambda s: max(s, default=None), dtype=pl.String,
    )  # fmt: skip


def _without(state: tuple[str, ...], t: int, x: str) -> tuple[str, ...]:
    place = state.index(x)
    return state[:place] + state[place + 1 :]


def spread() -> Any:
    return sq.aggregate_fn(
        ["x"], init=lambda: (0, 0), accumulate=lambda s, t, x: (s[0] + x, s[1] + 1),
        deaccumulate=lambda s, t, x: (s[0] - x, s[1] - 1), result=lambda s: s[0] - s[1], dtype=pl.Int64,
    )  # fmt: skip


def folded() -> Any:
    return sq.aggregate_fn(
        ["x"], init=lambda: (0,), accumulate=lambda s, t, x: (3 * s[0] + x,), result=lambda s: s[0], dtype=pl.Int64
    )


KEYED: dict[str, Callable[[Stream], Stream]] = {
    "windows": lambda s: s.hopping_window(20, 5).aggregate(n=sq.count(), m=sq.max("x")),
    "running": lambda s: s.with_duration(None).aggregate(n=sq.sum("x")),
    "sessions": lambda s: s.session_window(6).aggregate(n=sq.count()),
    "last three": lambda s: s.count_window(3).aggregate(n=sq.sum("x")),
    "chop": lambda s: s.session_window(6).chop(4),
    "stitch": lambda s: s.with_duration(10).stitch(),
    "distinct": lambda s: s.with_duration(9).distinct(),
    "shifted": lambda s: s.shift(7).point_at_end(),
    "with itself": lambda s: s.with_duration(8).join(s.shift(3).rename({"x": "y"})),
    "exists": lambda s: s.with_duration(8).where_not_exists(s.where(sq.col("x") > 4).with_duration(3)),
    "latest": lambda s: s.asof_join(s.where(sq.col("x") > 4).select(y=sq.col("x"))),
    "texts": lambda s: s.hopping_window(20, 5).aggregate(
        low=sq.min(TEXT), high=sq.max(TEXT, where=sq.col("x") > 1), least=sq.min(sq.col("x").cast(pl.Decimal(9, 1)))
    ),
    "texts of lifetimes": lambda s: s.aggregate(low=sq.min(TEXT), m=sq.percentile("x", 0.5)),
    "texts so far": lambda s: s.with_duration(None).aggregate(low=sq.min(TEXT), high=sq.max(TEXT), first=sq.first("x")),
    "first and last": lambda s: s.hopping_window(20, 5).aggregate(
        first=sq.first("x"), last=sq.last(TEXT), all=sq.collect_list("x", where=sq.col("x") > 0)
    ),
    "in their order": lambda s: s.aggregate(
        last=sq.last("x", order_by="x"), first=sq.first("x", where=sq.col("x") > 2)
    ),
    "lists of sessions": lambda s: s.session_window(6).aggregate(all=sq.collect_list("x"), top=sq.top_k("x", 2)),
    "distinct values": lambda s: s.hopping_window(20, 5).aggregate(n=sq.count_distinct("x"), m=sq.count_distinct(TEXT)),
    "distinct values alive": lambda s: s.aggregate(n=sq.count_distinct(sq.col("x") % 3)),
    "own sums": lambda s: s.hopping_window(20, 5).aggregate(n=spread()),
    "own folds": lambda s: s.hopping_window(20, 5).aggregate(n=folded()),
    "own in Python": lambda s: s.hopping_window(20, 5).aggregate(n=longest(), first=sq.first("x")),
    "stitched sessions": lambda s: s.session_window(6).select("x").stitch(),
    "patterns": lambda s: s.detect(PAIR, within=30),
    "patterns without end": lambda s: s.detect(sq.pattern.seq(sq.col("x") < 4, sq.pattern.one(sq.col("x") > 3, a="x"))),
    "latest of sessions": lambda s: s.session_window(6).asof_join(s.where(sq.col("x") > 4).select(y=TEXT)),
    "latest lately": lambda s: s.asof_join(s.where(sq.col("x") > 4).select(y=sq.col("x")), tolerance=7),
    "pairs": lambda s: s.with_duration(1).consecutive_pairs(),
    "from start to end": lambda s: s.with_duration(1).sessionize(sq.col("x") < 4, sq.col("x") == 5),
    "per window": lambda s: s.hopping_window(20, 5).aggregate(n=sq.count()).per_window(),
    "own operator": lambda s: s.operator(Running),
    "own operator with ends": lambda s: s.operator(Alive),
    "own function": lambda s: s.with_duration(11).snapshot_apply(largest),
}
