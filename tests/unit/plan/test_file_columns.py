"""The columns of files that do not store them, on every runtime without Spark."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import PlanError, SchemaChangedError, SourceReadError, SquillError
from squill.plan.build import file_columns
from squill.runtime import file_splits
from squill.testing import assert_same_events, reference

LATE = "".join(f'{{"t": {t}}}\n' for t in range(150)) + '{"t": 150, "late": 7, "in": {"a": 1}}\n'


def written(folder: Path, **texts: str | bytes) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def rows_of(paths: Any, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows, which are the same in this process, on shards and by the reference."""
    stream = sq.scan(paths, start="t", **options)
    with sq.local(cores=4) as cluster:
        on_shards = cluster.scan(paths, start="t", **options).collect(sort=True)
    answer = stream.collect(sort=True)
    assert on_shards.equals(answer)
    assert_same_events(answer, reference.run(stream))
    return answer.rows()


@pytest.mark.parametrize("empty", ["t,x\n", "t,x", "", "\n"])
@pytest.mark.parametrize("name", ["a_csv", "m_csv", "z_csv"])
def test_csv_without_rows_tells_no_types(tmp_path: Path, empty: str, name: str) -> None:
    written(tmp_path, **{"b_csv": "t,x\n1,2.5\n", "n_csv": "t,x\n2,3\n", name: empty})
    assert rows_of(tmp_path) == [(1, 2, 2.5), (2, 3, 3.0)]


def test_packed_csv_of_nothing_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b""))
    written(tmp_path, b_csv="t,x\n1,2.5\n")
    assert rows_of(tmp_path) == [(1, 2, 2.5)]


def test_a_csv_column_has_the_type_of_its_first_value_in_any_file(tmp_path: Path) -> None:
    written(tmp_path, a_csv="t,x,s,n\n1,,,\n", b_csv="t,x,s,n\n2,7,u,\n", c_csv="t,x,s,n\n3,8,9,\n")
    assert rows_of(tmp_path) == [(1, 2, None, None, None), (2, 3, 7, "u", None), (3, 4, 8, "9", None)]


def test_csv_files_without_a_line_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    written(tmp_path, a_csv="", b_csv="\n")
    with pytest.raises(SourceReadError, match=r"all 2 files are empty, '.*a.csv' too, so the col.*\n.*schema="):
        sq.scan(tmp_path, start="t")
    assert sq.scan(tmp_path, start="t", schema={"t": pl.Date, "x": pl.Int8}).collect().rows() == []


def test_a_header_alone_has_no_types_unless_they_are_said(tmp_path: Path) -> None:
    written(tmp_path, a_csv="t,x\n")
    with pytest.raises(sq.errors.TimeTypeError):
        sq.scan(tmp_path, start="t")
    assert rows_of(tmp_path, schema={"t": pl.Int64, "x": pl.Int8}) == []


def test_a_field_that_comes_late_is_not_lost(tmp_path: Path) -> None:
    written(tmp_path, a_ndjson=LATE)
    found = rows_of(tmp_path)
    assert found[0] == (0, 1, None, None)
    assert found[-1] == (150, 151, 7, {"a": 1})


def test_fields_are_those_of_all_blocks_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_columns, "BLOCK_BYTES", 64)
    written(tmp_path, a_ndjson='{"t": 1, "x": null}\n', b_ndjson=LATE, c_ndjson='{"x": 2.5, "t": 9}', d_ndjson="")
    found = sq.scan(tmp_path, start="t").plan.schema
    assert dict(found) == {"x": pl.Float64, "late": pl.Int64, "in": pl.Struct({"a": pl.Int64})}
    assert len(rows_of(tmp_path)) == 153


def test_fields_of_packed_lines_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson.gz").write_bytes(gzip.compress(LATE.encode()))
    assert rows_of(tmp_path)[-1] == (150, 151, 7, {"a": 1})


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_ndjson_of_nothing_is_an_error_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    written(tmp_path, a_ndjson=text)
    with pytest.raises(SourceReadError, match=r"'.*a.ndjson' is empty, so the columns are not known\n.*schema="):
        sq.scan(tmp_path, start="t")
    assert rows_of(tmp_path, schema={"t": pl.Int64}) == []


def test_numbers_and_texts_of_one_field_are_text_wherever_they_stand(tmp_path: Path) -> None:
    written(tmp_path, a_ndjson=LATE.replace("late", "x") + '{"t": 151, "x": "seven"}\n')
    assert [row[2] for row in rows_of(tmp_path)][-2:] == ["7", "seven"]


@pytest.mark.parametrize("other", ["[1]", "true", '{"a": 1}'])
@pytest.mark.parametrize("apart", [False, True])
def test_values_that_no_type_holds_are_an_error_naming_the_file(tmp_path: Path, other: str, apart: bool) -> None:
    many = '{"t": 1, "x": 2}\n' * 150
    last = f'{{"t": 1, "x": {other}}}\n'
    written(tmp_path, a_ndjson=many, b_ndjson=last) if apart else written(tmp_path, b_ndjson=many + last)
    with pytest.raises(SquillError, match=r"scan: .*b.ndjson'[^$]*\nHint: .*schema="):
        sq.scan(tmp_path, start="t").collect()


def test_a_schema_says_what_is_read_and_of_which_type(tmp_path: Path) -> None:
    written(tmp_path, a_ndjson=LATE, b_csv="t,x,y\n2020-01-02,007,1\n")
    assert rows_of(tmp_path / "a.ndjson", schema={"t": pl.Int32, "late": pl.String})[-1] == (150, 151, "7")
    found = rows_of(tmp_path / "b.csv", schema={"t": pl.Date, "x": pl.String})
    assert found == [(dt.date(2020, 1, 2), dt.date(2020, 1, 3), "007")]


def test_a_schema_may_name_types_that_polars_reads_in_two_steps(tmp_path: Path) -> None:
    written(tmp_path, a_ndjson='{"t": 1, "i": 3, "u": 4, "d": 1.25}\n{"t": 2, "d": "2.5"}\n')
    schema = {"t": pl.UInt16, "i": pl.Int8, "u": pl.UInt8, "d": pl.Decimal(10, 2)}
    assert rows_of(tmp_path, schema=schema) == [(1, 2, 3, 4, Decimal("1.25")), (2, 3, None, None, Decimal("2.50"))]
    (tmp_path / "a.ndjson").write_text('{"t": 1, "i": 300}\n')
    with pytest.raises(SourceReadError, match=r"a.ndjson' cannot be read .*: conversion from `i64` to `i8` failed"):
        sq.scan(tmp_path, start="t", schema=schema).collect()
    with pytest.raises(PlanError, match="column 'i' is Time, which is not read from ndjson"):
        sq.scan(tmp_path, start="t", schema={"t": pl.Int64, "i": pl.Time})


def test_times_in_json_are_read_as_the_schema_says(tmp_path: Path) -> None:
    written(tmp_path, a_ndjson='{"t": "2024-01-02T03:04:05Z"}\n')
    found = rows_of(tmp_path, schema={"t": pl.Datetime("ms", "UTC")})
    assert found[0][0] == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def test_a_value_that_the_schema_does_not_hold_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, a_ndjson='{"t": 1, "x": "two"}\n', b_csv="t,x\n1,two\n")
    for name in ("a.ndjson", "b.csv"):
        with pytest.raises(SchemaChangedError, match=r"column 'x' is String in .*; in this input it is Int64\n"):
            sq.scan(tmp_path / name, start="t", schema={"t": pl.Int64, "x": pl.Int64}).collect()


@pytest.mark.parametrize(
    ("schema", "error", "text"),
    [
        ({"t": pl.Int64, "z": pl.Int64}, SchemaChangedError, r"has no column 'z', which schema= names.*: t, x\n"),
        ({"t": "int"}, PlanError, r"scan: column 't' is 'int', which is no type"),
        (["t"], PlanError, r"scan: schema is \['t'\]"),
    ],
)
def test_a_schema_that_does_not_fit_is_an_error(tmp_path: Path, schema: Any, error: type, text: str) -> None:
    written(tmp_path, b_csv="t,x\n1,2\n")
    with pytest.raises(error, match=text):
        sq.scan(tmp_path, start="t", schema=schema)


def test_files_with_types_of_their_own_take_no_schema(tmp_path: Path) -> None:
    pl.DataFrame({"t": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(PlanError, match=r"parquet files say the types"):
        sq.scan(tmp_path, start="t", schema={"t": pl.Int64})


@pytest.mark.parametrize("schema", [None, {"t": pl.Int64, "x": pl.String}])
def test_ndjson_may_begin_with_a_mark_of_its_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Any
) -> None:
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 64)
    lines = "".join(f'{{"t":{row},"x":"{row}"}}\n' for row in range(50))
    (tmp_path / "a.ndjson").write_text(lines, encoding="utf-8-sig")
    read = sq.scan(tmp_path, schema=schema)
    with sq.local(3) as cluster:
        for on in (None, cluster):
            assert read.collect(on=on, sort=True).rows() == sorted((row, str(row)) for row in range(50))
