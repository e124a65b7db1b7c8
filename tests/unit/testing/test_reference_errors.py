"""What the engine refuses the reference refuses too, with the same kind of error, and both go on where they may."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError, SquillError, UserFunctionError
from squill.stream import Stream
from squill.testing import assert_same_events, reference

TIMES_ONLY = sq.from_frame({"t": [1, 2, 3]}, start="t")
NUMBERS = sq.from_frame({"t": [1, 2, 3], "x": [1, 2, None]}, start="t")
Y = {"y": pl.Int64}


def fail(_given: object) -> Any:
    raise ValueError("boom")


ANSWERED: dict[str, Callable[[], Stream]] = {
    "no columns, one more": lambda: TIMES_ONLY.map_batches(lambda f: f.with_columns(y=pl.lit(1, pl.Int64)), schema=Y),
    "no columns, the same": lambda: TIMES_ONLY.map_batches(lambda f: f),
    "no columns after": lambda: NUMBERS.map_batches(lambda f: pl.DataFrame(height=f.height), schema={}),
    "no columns, many": lambda: TIMES_ONLY.select_many(lambda _: [{"y": 1}, {"y": 2}], schema=Y),
    "no columns after, many": lambda: NUMBERS.select_many(lambda _: [{}, {}], schema={}),
    "none": lambda: NUMBERS.select_many(lambda _: [], schema=Y),
    "a generator": lambda: NUMBERS.select_many(lambda _: ({"y": i} for i in range(2)), schema=Y),
    "too many columns": lambda: NUMBERS.select_many(lambda _: [{"y": 1, "z": 2}], schema=Y),
    "whole numbers as floats": lambda: NUMBERS.select_many(lambda _: [{"y": 1}], schema={"y": pl.Float64}),
    "keys are put back": lambda: NUMBERS.group_apply("x", lambda g: g.select_many(lambda _: [{"y": 1}], schema=Y)),
    "nothing but keys": lambda: NUMBERS.group_apply("x", lambda g: g.select_many(lambda _: [{}], schema={})),
}
REFUSED: dict[str, Callable[[], Stream]] = {
    "it raises": lambda: NUMBERS.map_batches(fail, schema=Y),
    "it raises without columns": lambda: TIMES_ONLY.map_batches(fail, schema=Y),
    "no frame": lambda: NUMBERS.map_batches(lambda _: 3, schema=Y),
    "too many rows": lambda: NUMBERS.map_batches(lambda f: pl.concat([f, f]).rename({"x": "y"}), schema=Y),
    "too few rows": lambda: NUMBERS.map_batches(lambda f: f.select(), schema={}),
    "a column is missing": lambda: NUMBERS.map_batches(lambda f: f, schema=Y),
    "another type": lambda: NUMBERS.map_batches(lambda f: f.select(y=pl.col("x").cast(pl.Int32)), schema=Y),
    "each raises": lambda: NUMBERS.select_many(fail, schema=Y),
    "None": lambda: NUMBERS.select_many(lambda _: None, schema=Y),
    "no list": lambda: NUMBERS.select_many(lambda _: 3, schema=Y),
    "no rows in the list": lambda: NUMBERS.select_many(lambda _: [3], schema=Y),
    "rows without the column": lambda: NUMBERS.select_many(lambda _: [{"z": 1}], schema=Y),
    "a row without the column": lambda: NUMBERS.select_many(lambda _: [{"y": 1}, {}], schema=Y),
    "text for a number": lambda: NUMBERS.select_many(lambda _: [{"y": "a"}], schema=Y),
    "a fraction for a whole number": lambda: NUMBERS.select_many(lambda _: [{"y": 1.5}], schema=Y),
    "a number for text": lambda: NUMBERS.select_many(lambda _: [{"y": 1}], schema={"y": pl.String}),
    "a number too large": lambda: NUMBERS.select_many(lambda _: [{"y": 300}], schema={"y": pl.Int8}),
}


@pytest.mark.parametrize("case", ANSWERED)
def test_functions_that_are_fine(case: str) -> None:
    query = ANSWERED[case]()
    assert_same_events(query.collect(), reference.frame(query))


@pytest.mark.parametrize("case", REFUSED)
def test_functions_that_are_refused(case: str) -> None:
    query = REFUSED[case]()
    with pytest.raises(UserFunctionError, match=r"(map_batches|select_many)\(.*\): (.|\n)*the first row was"):
        query.collect()
    with pytest.raises(UserFunctionError):
        reference.run(query)


def test_the_row_that_is_wrong_is_shown() -> None:
    query = NUMBERS.select_many(lambda row: [{"y": 1}] if row["x"] == 1 else [{"z": 1}], schema=Y)
    with pytest.raises(UserFunctionError, match=r"'y' is missing from the row \{'z': 1\}.*first row was \{'x': 2\}"):
        query.collect()


DAYS = sq.from_frame(
    {"t": [dt.date(2020, 1, 1)], "hours": [dt.timedelta(hours=36)], "days": [dt.timedelta(days=2)]}, start="t"
)
LENGTHENED: dict[str, Callable[[str], Stream]] = {
    "with_duration": lambda name: DAYS.with_duration(sq.col(name)),
    "alter_lifetime": lambda name: DAYS.alter_lifetime(start=sq.start(), duration=sq.col(name)),
}


@pytest.mark.parametrize("operator", LENGTHENED)
def test_durations_that_are_no_whole_ticks(operator: str) -> None:
    whole, fraction = LENGTHENED[operator]("days"), LENGTHENED[operator]("hours")
    assert_same_events(whole.collect(), reference.frame(whole))
    for run in (Stream.collect, reference.run):
        with pytest.raises(SquillError, match="not a whole number of ticks") as caught:
            run(fraction)
        assert type(caught.value) is InputError
