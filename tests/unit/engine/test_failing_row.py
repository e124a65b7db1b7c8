"""Expressions that fail name a row at which they do."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.engine.failing_row import first_failing
from squill.errors import InputError

NUMBER = sq.col("k").cast(pl.Int64)
FRAME = pl.DataFrame({"t": range(100), "k": [*map(str, range(70)), "odd", *map(str, range(29))], "who": "ann"})


@pytest.mark.parametrize("row", [0, 1, 63, 99])
def test_the_row_is_found_by_halves(row: int) -> None:
    frame = pl.DataFrame({"k": ["odd" if place >= row else "1" for place in range(100)]})
    found = first_failing(frame, lambda rows: rows.select(NUMBER))
    assert found is not None
    assert found[0] == row
    assert "1 out of 1 values" in found[1]


def test_no_row_is_blamed_where_none_fails() -> None:
    assert first_failing(FRAME.select("who"), lambda rows: rows.select("who")) is None
    assert first_failing(FRAME.clear(), lambda rows: rows.select(NUMBER)) is None


@pytest.mark.parametrize("batch_rows", [1, 7, 65_536])
def test_a_failing_expression_shows_the_row_whatever_the_batch(batch_rows: int) -> None:
    with pytest.raises(InputError, match=r"select: .* for the row \{'k': 'odd', 'who': 'ann'\}: .*1 out of 1 values"):
        sq.from_frame(FRAME, start="t").select("who", n=NUMBER).collect(batch_rows=batch_rows)


def test_a_failing_expression_of_the_time_shows_the_time() -> None:
    late = pl.when(sq.start() == 70).then(pl.lit("late")).otherwise(pl.lit("1")).cast(pl.Int64)
    with pytest.raises(InputError, match=r"for the row \{'who': 'ann', 'start\(\)': 70\}"):
        sq.from_frame(FRAME.drop("k"), start="t").select("who", n=late).collect()


def test_a_condition_that_fails_on_a_file_shows_the_row(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "a.parquet", row_group_size=30)
    with pytest.raises(InputError, match=r"where: .* for the row \{'t': 70, 'k': 'odd', 'who': 'ann'\}"):
        sq.scan(tmp_path / "a.parquet", start="t").where(NUMBER > 3).select("who").collect()
