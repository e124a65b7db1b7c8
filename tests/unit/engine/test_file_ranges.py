"""Parts of files that Polars does not read by itself."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.engine.file_ranges import batch_parts, line_parts, lines
from squill.errors import InputError
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


@pytest.mark.parametrize("text", ['t,x\n1,"2"\n3,4\n', "\nt,x\n1,2\n3,4\n"])
def test_csv_files_that_cannot_be_cut_safely_are_one_part(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
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
    assert [(part.first, part.size) for part, _ in batch_parts(str(path), 1)] == [(n, 1) for n in range(5)]
    assert [(part.first, part.size) for part, _ in batch_parts(str(path), path.stat().st_size)] == [(0, 5)]


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
