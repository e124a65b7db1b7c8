"""Parts of files that Polars does not read by itself."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.engine.file_ranges import batch_parts, line_parts, lines
from squill.errors import InputError, SquillError
from squill.plan.build.files import scan_files
from squill.plan.schema import Schema
from squill.runtime import file_splits

COLUMNS = Schema({"t": pl.Int64(), "x": pl.Int64()})


def ranges(path: Path, kind: str, part_bytes: int) -> list[tuple[int, int | None]]:
    return [(part.first, part.size) for part, _ in line_parts(str(path), kind, part_bytes)]


def test_lines_are_cut_where_they_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,x\n1,2\n3,4\n5,6\n")
    assert ranges(path, "csv", 4) == [(0, 4), (4, 4), (8, 4), (12, 4)]
    assert ranges(path, "csv", 5) == [(0, 8), (8, 4), (12, 4)]
    assert ranges(path, "csv", 9) == [(0, None)]


def test_each_range_of_a_csv_file_has_the_columns_of_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,t\n1,2\n3,4\n")
    rows = [
        scan_files(lines(part, "csv"), "csv", COLUMNS).collect().to_dicts()
        for part, _ in line_parts(str(path), "csv", 4)
    ]
    assert rows == [[], [{"x": 1, "t": 2}], [{"x": 3, "t": 4}]]


@pytest.mark.parametrize("text", ['t,x\n1,"2"\n3,4\n', "\nt,x\n1,2\n3,4\n", "\ufeff\nt,x\n1,2\n3,4\n"])
def test_csv_files_that_cannot_be_cut_safely_are_one_part(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    assert ranges(path, "csv", 4) == [(0, None)]


def test_compressed_files_are_one_part(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(gzip.compress(b'{"t":1}\n{"t":2}\n' * 9))
    assert ranges(path, "ndjson", 4) == [(0, None)]


def test_ndjson_is_cut_though_it_has_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"t":1}\n{"t":2}\n')
    assert ranges(path, "ndjson", 8) == [(0, 8), (8, 8)]


def test_ipc_is_cut_between_record_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    pl.DataFrame({"t": range(9)}).write_ipc(path, record_batch_size=2)
    columns = Schema({"t": pl.Int64()})
    assert [(part.first, part.size) for part, _ in batch_parts(str(path), columns, 1)] == [(n, 1) for n in range(5)]
    assert [(part.first, part.size) for part, _ in batch_parts(str(path), columns, path.stat().st_size)] == [(0, 5)]


def test_errors_say_which_range_of_a_file_a_row_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 1)
    (tmp_path / "a.csv").write_text("t,x\n1,2\n3,4\n5,6\n,8\n")
    with sq.local(4) as cluster, pytest.raises(InputError, match=r"a.csv, bytes from 16 on.*null in row 0"):
        cluster.scan(tmp_path, start="t").collect()


def test_types_of_record_batches_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 1)
    frame = pl.DataFrame(
        {"t": range(4), "c": ["a", "b", "a", None], "e": ["u", "v", "u", "u"], "l": [[1], [], None, [2, 3]]},
        schema_overrides={"c": pl.Categorical(), "e": pl.Enum(["u", "v"])},
    )
    frame.write_ipc(tmp_path / "a.arrow", record_batch_size=1)
    with sq.local(2) as cluster:
        assert cluster.scan(tmp_path, start="t").collect().drop("end").rename({"start": "t"}).equals(frame)


ZONED = "2024-01-02T10:00:00+02:00"


@pytest.mark.parametrize(
    ("first", "later"), [("2024-01-02T10:00:00", ZONED), (ZONED, "2024-01-02T10:00:00"), ("2024-01-02", ZONED)]
)
@pytest.mark.parametrize("rows", [(1, 1), (300, 300)])
def test_times_of_another_kind_than_the_first_are_an_error_whoever_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, later: str, rows: tuple[int, int]
) -> None:
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 1)
    before, after = (f"{value},1\n" * count for value, count in zip((first, later), rows, strict=True))
    for name, text in (
        ("one", "t,x\n" + before * 100 + after),
        ("two/a", "t,x\n" + before),
        ("two/b", "t,x\n" + after),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.csv").write_text(text)
    for paths in (tmp_path / "one.csv", tmp_path / "two"):
        for cores in (1, 4):
            with sq.local(cores) as cluster, pytest.raises(SquillError, match="column 't'"):
                cluster.scan(paths).collect()


def test_dates_are_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 1)
    text = "d,x\n2024-01-02,1\n" + "".join(f"{day:02}-02-2024,2\n2024/03/{day:02},3\n,4\n" for day in range(1, 20))
    (tmp_path / "a.csv").write_text(text)
    answers = []
    for cores in (1, 3, 20):
        with sq.local(cores) as cluster:
            answers.append(cluster.scan(tmp_path).collect(sort=True))
    assert answers[0].equals(answers[1])
    assert answers[0].equals(answers[2])
    assert sorted(answers[0]["d"].dt.month().fill_null(0)) == [0] * 19 + [1] + [2] * 19 + [3] * 19


def test_zones_of_full_hours_may_be_said_in_hours(tmp_path: Path) -> None:
    """As PostgreSQL writes them."""
    (tmp_path / "a.csv").write_text("t,x\n2024-01-02 10:00:00+02,1\n2024-01-02 10:00:00.5-01,2\n2024-01-02T10:00Z,3\n")
    assert sq.scan(tmp_path).collect(sort=True)["t"].dt.hour().to_list() == [8, 10, 11]
    (tmp_path / "a.csv").write_text("t,x\n2024-01-02 10:00:00,1\n2024-01-02 10:00:00+02,2\n")
    given = sq.scan(tmp_path, schema={"t": pl.Datetime("us"), "x": pl.Int64}).collect(sort=True)
    assert given["t"].dt.hour().to_list() == [8, 10]


def test_a_type_that_is_given_takes_times_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f't,x\n{ZONED},1\n2024-01-02 10:00,2\n"",3\n')
    for zone, hours in ((None, [8, 10, None]), ("Europe/Berlin", [9, 11, None])):
        rows = sq.scan(tmp_path, schema={"t": pl.Datetime("ms", zone), "x": pl.Int64}).collect()
        assert rows.schema["t"] == pl.Datetime("ms", zone)
        assert rows["t"].dt.hour().to_list() == hours
