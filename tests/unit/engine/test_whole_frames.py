"""Files that have fewer rows than they say, or than they had: an error, and never an answer of fewer rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.engine.files import frames_of
from squill.engine.whole_frames import whole_frames
from squill.errors import SourceReadError
from squill.plan.nodes import FilePart, FileSource
from squill.plan.schema import Schema
from squill.stream import Stream

ROWS = 1_000
FRAME = pl.DataFrame({"t": range(ROWS), "k": [row % 7 for row in range(ROWS)]})


def written(path: Path, said: dict[int, int]) -> Path:
    """Write rows in groups of 100; at its end the file says other numbers of rows."""
    FRAME.write_parquet(path, row_group_size=100)
    content = path.read_bytes()
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    told = content[end:]
    for rows, instead in said.items():
        told = told.replace(_number(rows), _number(instead))
    path.write_bytes(content[:end] + told)
    assert path.stat().st_size == len(content)
    return path


def _number(value: int) -> bytes:
    """Return two bytes, as Thrift writes whole numbers of this size."""
    return bytes([2 * value & 127 | 128, 2 * value >> 7])


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "all": lambda rows: rows,
    "some": lambda rows: rows.where(pl.col("k") < 100),
    "their number": lambda rows: rows.count(),
}


@pytest.mark.parametrize("start", [None, "t"])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("said", [900, 2_000])
def test_row_groups_that_have_other_rows_than_the_file_are_an_error(
    tmp_path: Path, said: int, query: str, start: str | None
) -> None:
    rows = QUERIES[query](sq.scan(written(tmp_path / "a.parquet", {1_000: said}), start=start))
    with sq.local(2) as cluster:
        for on in (None, cluster):
            with pytest.raises(SourceReadError, match=f"says that it has {said:,} rows, and there are 1,000"):
                rows.collect(on=on)


def test_rows_that_end_where_polars_panics_are_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {1_000: 900, 100: 90})
    with sq.local(2) as cluster:
        for on in (None, cluster):
            with pytest.raises(SourceReadError, match="its rows ended before all had come"):
                sq.scan(path).where(pl.col("k") < 100).collect(on=on)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("condition", [None, pl.col("k") < 100])
def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path, condition: pl.Expr | None, *, ahead: bool) -> None:
    FRAME.write_parquet(tmp_path / "a.parquet", row_group_size=100)
    source = sq.scan(tmp_path).plan
    assert isinstance(source, FileSource)
    if condition is not None:
        filtered = sq.scan(tmp_path).where(condition).plan
        source = replace(source, predicate=filtered.predicate)  # type: ignore[attr-defined]
    FRAME.head(600).write_parquet(tmp_path / "a.parquet", row_group_size=100)
    with pytest.raises(SourceReadError, match="it has 600 rows, and had 800 before"):
        list(frames_of(source, FilePart(source.paths[0], 400, 400), ahead=ahead))


@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
def test_a_range_of_lines_that_has_become_shorter_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text("t\n1\n2\n3\n" if suffix == "csv" else '{"t":1}\n{"t":2}\n')
    source = sq.scan(path).plan
    assert isinstance(source, FileSource)
    with pytest.raises(SourceReadError, match="bytes, and had 108 before"):
        list(frames_of(source, FilePart(str(path), 8, 100)))


def test_the_mark_of_the_end_takes_no_name_of_a_column() -> None:
    frame = pl.DataFrame({"end of rows": [True, None], "end of rows_": ["a", "b"]})
    assert pl.concat(whole_frames(frame.lazy(), Schema(frame.schema))).equals(frame)


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Null(), pl.Enum(["a"]), pl.Categorical(), pl.Decimal(38, 2), pl.List(pl.Struct({"x": pl.Binary()})),
        pl.Array(pl.Date(), 2), pl.Struct({}), pl.Time(), pl.Int128(), pl.Datetime("ns", "Europe/Lisbon"),
    ],
    ids=str,
)  # fmt: skip
def test_columns_of_all_types_have_an_end(dtype: pl.DataType) -> None:
    frame = pl.DataFrame({"x": pl.Series([None, None], dtype=dtype)})
    found = list(whole_frames(frame.lazy(), Schema(frame.schema)))
    assert pl.concat(found).equals(frame)
    assert {item.schema["x"] for item in found} == {dtype}
    assert not list(whole_frames(frame.clear().lazy(), Schema(frame.schema)))
