"""Operators as users write them, for tests over any payload: what they see of it is how many values are null."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

__all__ = ["OPERATORS", "Balance", "Gaps", "Numbered", "described"]

Row = dict[str, Any]


def nulls(frame: pl.DataFrame) -> int:
    """Return a number that depends on the order of the rows."""
    return sum((place + 1) * sum(value is None for value in row) for place, row in enumerate(frame.rows()))


class Numbered:
    """Points: every row gets its number; every so often none is returned."""

    def __init__(self, prefix: str, every: int) -> None:
        self.names = (f"{prefix}number", f"{prefix}nulls")
        self.schema = dict.fromkeys(self.names, pl.Int64)
        self.every = every
        self.count = 0

    def on_instant(self, t: int, starts: pl.DataFrame) -> Iterator[Row]:
        for row in starts.rows():
            self.count += 1
            if self.count % (self.every + 1):
                yield dict(zip(self.names, (self.count, sum(value is None for value in row)), strict=True))

    def save(self) -> int:
        return self.count

    def load(self, state: int) -> None:
        self.count = state


class Balance:
    """Rows until the next answer: how many events are alive; knows when it is empty."""

    lifetime = "until_next"

    def __init__(self, prefix: str, every: int) -> None:
        self.names = (f"{prefix}alive", f"{prefix}nulls")
        self.schema = dict.fromkeys(self.names, pl.Int64)
        self.every = every
        self.balance = 0
        self.calls = 0

    def on_instant(self, t: int, starts: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame | list[Row] | None:
        self.balance += starts.height - ends.height
        self.calls += 1
        if self.balance == 0:
            return []
        if self.calls % (self.every + 1) == 0:
            return None
        row = dict(zip(self.names, (self.balance, nulls(starts) - nulls(ends)), strict=True))
        return pl.DataFrame([row], schema=self.schema) if self.balance % 5 == 0 else [row] * (1 + self.balance % 2)

    @property
    def alive(self) -> bool:
        return self.balance > 0

    def save(self) -> dict[str, int]:
        return {"balance": self.balance, "calls": self.calls}

    def load(self, state: dict[str, int]) -> None:
        self.balance, self.calls = state["balance"], state["calls"]


class Gaps:
    """Intervals: some ticks after the last event it says so, several times, some of them ahead of time."""

    lifetime = "interval"
    wake_at: int | None = None

    def __init__(self, prefix: str, every: int) -> None:
        self.names = (f"{prefix}last", f"{prefix}nulls")
        self.schema = dict.fromkeys(self.names, pl.Int64)
        self.every = every
        self.last = 0
        self.left = 0

    def on_instant(self, t: int, starts: pl.DataFrame) -> Row:
        self.last, self.left = t, 2
        self.wake_at = t + 2 * self.every
        return {self.names[0]: t, self.names[1]: nulls(starts), "end": None if t % 5 == 0 else t + self.every}

    def on_time(self, t: int) -> list[Row]:
        self.left -= 1
        self.wake_at = t + 3 if self.left > 0 else None
        ahead = t + self.left * self.every
        return [{self.names[0]: self.last, self.names[1]: None, "start": ahead, "end": ahead + 4}] * self.left

    @property
    def alive(self) -> bool:
        return self.left > 0

    def save(self) -> list[int]:
        return [self.last, self.left]

    def load(self, state: list[int]) -> None:
        self.last, self.left = state


class Silence:
    """Rows until the next answer and timers: says for how many events it was loud, and when it became silent."""

    lifetime = "until_next"
    wake_at: int | None = None

    def __init__(self, prefix: str, every: int) -> None:
        self.names = (f"{prefix}loud", f"{prefix}nulls")
        self.schema = dict.fromkeys(self.names, pl.Int64)
        self.every = every
        self.loud = 0

    def on_instant(self, t: int, starts: pl.DataFrame) -> Row | None:
        self.loud += starts.height
        self.wake_at = t + self.every
        return dict(zip(self.names, (self.loud, nulls(starts)), strict=True)) if t % 4 else None

    def on_time(self, t: int) -> list[Row]:
        said, self.loud = self.loud, 0
        return [dict(zip(self.names, (-said, None), strict=True))] * (said % 3)

    @property
    def alive(self) -> bool:
        return self.loud > 0

    def save(self) -> int:
        return self.loud

    def load(self, state: int) -> None:
        self.loud = state


OPERATORS: tuple[type, ...] = (Numbered, Balance, Gaps, Silence)


def described(prefix: str) -> tuple[Callable[[pl.DataFrame], Any], dict[str, Any]]:
    """Return a function of a snapshot that returns every kind of answer, and its schema."""
    names = (f"{prefix}rows", f"{prefix}nulls")
    schema = dict.fromkeys(names, pl.Int64)

    def describe(alive: pl.DataFrame) -> Any:
        row = dict(zip(names, (alive.height, nulls(alive)), strict=True))
        match alive.height % 4:
            case 0:
                return None
            case 1:
                return row
            case 2:
                return [row, row]
        return pl.DataFrame([row], schema=schema)

    return describe, schema
