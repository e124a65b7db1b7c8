"""What files say of their row groups: it may spare reading, and never costs a row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import squill as sq
from squill.errors import SchemaChangedError, SourceReadError

ORDER = pl.Enum(["9", "b", "a", "10", "5", "1"])
ROWS = pl.DataFrame(
    {
        "t": range(8),
        "text": ["b", "b", "a", "a", "1", "5", "10", "9"],
        "small": pl.Series([-128, -5, 0, 1, 2, 3, 100, 127], dtype=pl.Int8),
    }
).with_columns(pl.col("text").cast(ORDER).alias("enum"))
FILTERS = {
    "text below a value of an Enum": pl.col("text") < pl.lit("a", dtype=ORDER),
    "text that is a value of an Enum": pl.col("text") == pl.lit("5", dtype=ORDER),
    "a value of an Enum above text": pl.lit("b", dtype=ORDER) >= pl.col("text"),
    "an Enum that is another text": pl.col("enum") == "zz",
    "numbers that wrap around": pl.col("small") * 2 < 0,
    "the least number turned": -pl.col("small") > 0,
}


@pytest.mark.parametrize("condition", FILTERS.values(), ids=FILTERS)
def test_bounds_of_row_groups_leave_all_rows_that_a_filter_keeps(tmp_path: Path, condition: pl.Expr) -> None:
    pq.write_table(ROWS.to_arrow(), tmp_path / "a.parquet", row_group_size=2)
    kept = ROWS.filter(condition)
    for read in (sq.scan(tmp_path, start="t", keep_time=True), sq.scan(tmp_path)):
        with sq.local(2) as cluster:
            for on in (None, cluster):
                found = read.where(condition).collect(on=on)
                assert found.select(ROWS.columns).sort("t").equals(kept)


@pytest.mark.parametrize("dtype", [pl.Datetime("ms"), pl.Datetime("ns"), pl.Int64(), pl.String()])
def test_bounds_of_another_type_do_not_hide_that_a_file_was_changed(tmp_path: Path, dtype: pl.DataType) -> None:
    path = tmp_path / "a.parquet"
    frame = pl.DataFrame({"t": pl.Series([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]), "x": [1, 2]})
    frame.write_parquet(path)
    conditions = [pl.col("t") > dt.datetime(2023, 1, 1), pl.col("t") < dt.datetime(2025, 1, 1)]
    read = sq.scan(path, start="t", keep_time=True)
    frame.cast({"t": dtype}).write_parquet(path)
    with sq.local(2) as cluster:
        for on in (None, cluster):
            for condition in conditions:
                with pytest.raises(SchemaChangedError, match=r"column 't' is .* in this input it is Datetime"):
                    read.where(condition).collect(on=on)


def test_bounds_that_are_no_text_are_an_error_of_the_file(tmp_path: Path) -> None:
    ends, letters = pa.py_buffer(np.array([0, 2, 4], np.int32).tobytes()), pa.py_buffer(b"ab\xff\xfe")
    text = pa.StringArray.from_buffers(2, ends, letters)
    pq.write_table(pa.table({"t": [1, 2], "s": text}), tmp_path / "a.parquet")
    for start in (None, "t"):
        with pytest.raises(SourceReadError, match="cannot be read as parquet"):
            sq.scan(tmp_path, start=start).where(pl.col("s") == "ab").collect()
