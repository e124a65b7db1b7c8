"""Ticks and durations.

Inside the engine a time is an int64 number of ticks. What a tick is follows from the time column's
type: a day for Date, the unit of a Datetime, 1 for integers. `TimeType` carries that type through the
plan, so that results come back as the input was. Infinity is a number of its own on both sides.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from squill.errors import DurationError, TimeOverflowError, TimeTypeError
from squill.wording import shortened

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["INFINITY", "MINUS_INFINITY", "PROGRESS", "Duration", "ProgressType", "TimeType"]

INFINITY = 2**63 - 1
MINUS_INFINITY = -(2**63) + 1

Duration = int | str | dt.timedelta

NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
    "w": 7 * 86_400 * 1_000_000_000,
}
DURATION_PATTERN = re.compile(r"(-?)((?:\d+(?:ns|us|ms|s|m|h|d|w))+)")
DURATION_PART = re.compile(r"(\d+)(ns|us|ms|s|m|h|d|w)")
EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class TimeType:
    """The type of a stream's time: its dtype and what one tick of it is.

    Examples
    --------
    >>> TimeType.of(pl.Datetime("ms")).ticks("1h", "hop")
    3600000
    >>> TimeType.of(pl.Date()).ticks("1w", "size")
    7
    >>> TimeType.of(pl.Int64()).ticks(10, "size")
    10
    """

    dtype: pl.DataType

    orders_rows: ClassVar[bool] = True
    """Whether an earlier start comes first where rows need an order, as for `first` and `collect_list`."""

    @classmethod
    def of(cls, dtype: PolarsDataType, column: str = "start") -> TimeType:
        """Return the time type of a column, or raise when no time can be read from it."""
        instance = dtype if isinstance(dtype, pl.DataType) else dtype()
        if instance.is_integer() and instance not in (pl.Int128(), pl.UInt128()):
            return cls(instance)
        if isinstance(instance, (pl.Date, pl.Datetime)):
            return cls(instance)
        raise TimeTypeError(
            f"column {column!r} is {instance}; a time is a Date, a Datetime or an integer",
            f"convert it first, for instance pl.col({column!r}).str.to_datetime('%Y-%m-%d %H:%M:%S') "
            "or .cast(pl.Datetime('us')).",
        )

    @property
    def is_integer(self) -> bool:
        return self.dtype.is_integer()

    @property
    def unit(self) -> str:
        """The tick in words: ``"1"`` (integers), ``"d"``, ``"ms"``, ``"us"`` or ``"ns"``."""
        if self.is_integer:
            return "1"
        return self.dtype.time_unit if isinstance(self.dtype, pl.Datetime) else "d"

    @property
    def tick_nanoseconds(self) -> int:
        """How many nanoseconds one tick lasts; meaningless for integers."""
        return NANOSECONDS[self.unit]

    def __str__(self) -> str:
        return str(self.dtype)

    def ticks(self, duration: Duration, what: str) -> int:
        """Return `duration` in ticks; `what` names the argument in errors."""
        if isinstance(duration, bool) or not isinstance(duration, (int, str, dt.timedelta)):
            raise DurationError(
                f"{what} is {shortened(duration)}, not a duration",
                'use an int (integer time), a timedelta, or text like "10ms", "5m", "1h", "7d".',
            )
        if isinstance(duration, int):
            return self._whole_ticks(duration, what)
        nanoseconds = _nanoseconds(duration, what)
        if self.is_integer:
            raise DurationError(
                f"{what} is {duration!r}, but this stream's time is {self.dtype}: its ticks have no unit",
                "give a whole number of ticks, or make the time column a Datetime.",
            )
        ticks, rest = divmod(nanoseconds, self.tick_nanoseconds)
        if rest:
            raise DurationError(
                f"{what} is {duration!r}, not a whole number of ticks: this stream's time is {self.dtype}, "
                f"one tick is 1{self.unit}",
                f"use a multiple of 1{self.unit}, or make the ticks finer with cast_time(…).",
            )
        return _checked(ticks, what)

    def _whole_ticks(self, duration: int, what: str) -> int:
        if duration != 0 and not self.is_integer:
            raise DurationError(
                f"{what} is the integer {duration}, but this stream's time is {self.dtype}",
                f'say the unit: "{abs(duration)}{self.unit}" for that many ticks, or "1h", "7d", …',
            )
        return _checked(duration, what)

    def positive(self, duration: Duration, what: str) -> int:
        """Return `duration` in ticks, refusing zero and less."""
        ticks = self.ticks(duration, what)
        if ticks <= 0:
            raise DurationError(f"{what} is {duration!r}; it must be longer than zero", "give at least one tick.")
        return ticks

    def instant(self, value: object, what: str) -> int:
        """Return a point in time given as a Python value (int, date, datetime) in ticks."""
        if self.is_integer:
            if isinstance(value, int) and not isinstance(value, bool):
                return _checked(value, what)
        elif isinstance(value, dt.datetime):
            return self._datetime_ticks(value)
        elif isinstance(value, dt.date):
            return self._datetime_ticks(dt.datetime(value.year, value.month, value.day))
        raise TimeTypeError(
            f"{what} is {shortened(value)}, but this stream's time is {self.dtype}",
            "give an int for integer time, a date or datetime otherwise.",
        )

    def _datetime_ticks(self, value: dt.datetime) -> int:
        naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        since = naive - EPOCH
        microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return microseconds * 1_000 // self.tick_nanoseconds

    def show(self, ticks: int) -> str:
        """Return `ticks` as people write them, for messages.

        >>> TimeType.of(pl.Datetime("us")).show(0)
        '1970-01-01 00:00:00'
        """
        if ticks == INFINITY:
            return "infinity"
        if ticks == MINUS_INFINITY:
            return "minus infinity"
        if self.is_integer:
            return str(ticks)
        try:
            moment = EPOCH + dt.timedelta(microseconds=ticks * self.tick_nanoseconds // 1_000)
        except OverflowError:
            return f"{ticks} ({self.unit} since 1970)"
        return str(moment.date() if self.unit == "d" else moment)


class ProgressType(TimeType):
    """The type of progress in the place of time: of relational rows it says when they are there, not in which order."""

    orders_rows: ClassVar[bool] = False


PROGRESS = ProgressType(pl.Int64())


def _checked(ticks: int, what: str) -> int:
    if not MINUS_INFINITY < ticks < INFINITY:
        raise TimeOverflowError(f"{what} is {ticks} ticks, outside the 64-bit range", "use a shorter duration.")
    return ticks


def _nanoseconds(duration: str | dt.timedelta, what: str) -> int:
    if isinstance(duration, dt.timedelta):
        return ((duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds) * 1_000
    match = DURATION_PATTERN.fullmatch(duration.strip())
    if match is None:
        raise DurationError(
            f"{what} is {shortened(duration)}, which is not a duration",
            'write a whole number and a unit, as in "10ms", "1s", "5m", "1h30m", "7d" (ns us ms s m h d w).',
        )
    total = sum(int(number) * NANOSECONDS[unit] for number, unit in DURATION_PART.findall(match.group(2)))
    return -total if match.group(1) else total
