"""A hopping window as every tool is asked for it: a count or a sum, of all events or per key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import polars as pl

import squill as sq
from benchmarks import data

__all__ = ["Hopping", "lifetimes_per_window", "squill_rows"]

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hopping:
    """The count of events in windows of `size` at every `hop`, or the sum of `value`; `size` is whole hops."""

    size: timedelta
    hop: timedelta
    key: str | None = None
    value: str | None = None

    @property
    def size_us(self) -> int:
        return self.size // MICROSECOND

    @property
    def hop_us(self) -> int:
        return self.hop // MICROSECOND

    @property
    def copies(self) -> int:
        """How many windows an event is in."""
        return self.size // self.hop

    @property
    def ticks(self) -> int:
        """How many windows the data has."""
        return (timedelta(days=data.DAYS) + self.size) // self.hop

    @property
    def keys(self) -> list[str]:
        return [] if self.key is None else [self.key]

    @property
    def result(self) -> str:
        return "n" if self.value is None else "s"

    @property
    def rows(self) -> list[str]:
        """The columns of the answer."""
        return ["start", "end", *self.keys, self.result]

    @property
    def per_window(self) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """Turn lifetimes into one row per window, for the tools that answer so."""
        return partial(lifetimes_per_window, hop=self.hop)


def squill_rows(query: Hopping, frame: pl.DataFrame) -> pl.DataFrame:
    """Return Squill's answer."""

    def windows(stream: sq.Stream) -> sq.Stream:
        aggregate: Any = sq.count() if query.value is None else sq.sum(query.value)
        return stream.hopping_window(query.size, query.hop).aggregate(**{query.result: aggregate})

    events = sq.from_frame(frame, start="ts")
    answer = windows(events) if query.key is None else events.group_apply(query.key, windows)
    return answer.collect()


def lifetimes_per_window(frame: pl.DataFrame, hop: timedelta) -> pl.DataFrame:
    """Return one row for each window that an answer lives through, with the window's end."""
    ends = pl.datetime_ranges("start", "end", hop, closed="left").alias("window_end")
    return frame.with_columns(ends).explode("window_end").drop("start", "end")
