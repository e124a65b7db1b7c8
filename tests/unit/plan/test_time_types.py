"""Inputs of different time types: what the hint says makes them fit, and is tried here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import TimeTypeError

US, MS = pl.Datetime("us"), pl.Datetime("ms")
UTC, UTC_MS, PARIS = pl.Datetime("us", "UTC"), pl.Datetime("ms", "UTC"), pl.Datetime("us", "Europe/Paris")


def read(dtype: Any, start: Callable[[pl.Expr], pl.Expr] = lambda time: time) -> sq.Stream:
    frame = pl.DataFrame({"x": [1], "t": pl.Series([1]).cast(dtype)})
    return sq.from_frame(frame, start=start(sq.col("t"))).select("x")


CASES: dict[str, tuple[Any, Any, str, Callable[[], tuple[sq.Stream, sq.Stream]]]] = {
    "units": (US, MS, r'\.cast_time\("us"\) on the input of Datetime\(time_unit=\'ms\'',
        lambda: (read(US), read(MS).cast_time("us"))),
    "units in a zone": (UTC_MS, UTC, r'\.cast_time\("us"\) on the input of Datetime\(time_unit=\'ms\'',
        lambda: (read(UTC_MS).cast_time("us"), read(UTC))),
    "days": (pl.Date, MS, r'\.cast_time\("ms"\) on the input of Date',
        lambda: (read(pl.Date).cast_time("ms"), read(MS))),
    "zones": (UTC, PARIS, r"start=sq.col\(…\)\.dt\.convert_time_zone\('UTC'\)\.$",
        lambda: (read(UTC), read(PARIS, lambda time: time.dt.convert_time_zone("UTC")))),
    "zones and units": (PARIS, UTC_MS, r'convert_time_zone\(\'Europe/Paris\'\), and \.cast_time\("us"\) on',
        lambda: (read(PARIS), read(UTC_MS, lambda time: time.dt.convert_time_zone("Europe/Paris")).cast_time("us"))),
    "a zone and none": (US, UTC, r"start=sq.col\(…\)\.dt\.replace_time_zone\('UTC'\)\.$",
        lambda: (read(US, lambda time: time.dt.replace_time_zone("UTC")), read(UTC))),
    "a zone and days": (UTC, pl.Date, r'pl\.Datetime\("us"\)\)\.dt\.replace_time_zone\(\'UTC\'\)\.$',
        lambda: (read(UTC), read(pl.Date, lambda time: time.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")))),
    "a zone and days, in days": (UTC, pl.Date, r'count both in days, \.cast_time\("d"\)',
        lambda: (read(UTC).cast_time("d"), read(pl.Date))),
    "a number and a time": (pl.Int64, UTC, r"cast\(pl\.Datetime\(time_unit='us', time_zone='UTC'\)\)",
        lambda: (read(pl.Int64, lambda time: time.cast(pl.Datetime(time_unit="us", time_zone="UTC"))), read(UTC))),
    "a day and a number": (pl.Date, pl.Int32, r"ticks of 1d, .*cast\(pl\.Date\)",
        lambda: (read(pl.Date), read(pl.Int32, lambda time: time.cast(pl.Date)))),
    "numbers": (pl.Int32, pl.Int64, r"cast\(pl\.Int64\)",
        lambda: (read(pl.Int32, lambda time: time.cast(pl.Int64)), read(pl.Int64))),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_hint_on_different_time_types_helps(case: str) -> None:
    first, second, said, mended = CASES[case]
    with pytest.raises(TimeTypeError, match="different time types") as caught:
        read(first).union(read(second))
    assert caught.value.hint is not None
    assert re.search(said, caught.value.hint), caught.value.hint
    one, other = mended()
    assert one.union(other).collect().height == 2


def test_a_new_start_keeps_its_type() -> None:
    with pytest.raises(TimeTypeError, match=r"Hint: keep the type\.$"):
        read(pl.Int64).alter_lifetime(start=sq.start().cast(pl.Date), duration=1)
    with pytest.raises(TimeTypeError, match=r"Hint: keep the type; \.cast_time\(…\) afterwards"):
        read(UTC).alter_lifetime(start=sq.start().dt.convert_time_zone("Europe/Paris"), duration="1h")
