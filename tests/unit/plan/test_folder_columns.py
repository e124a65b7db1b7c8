"""Columns that folders tell, in every format, in this process, on threads and by the reference."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine.files import parts_of
from squill.errors import PlanError, SchemaChangedError
from squill.plan.nodes import FileSource
from squill.plan.rewrite import rewrite
from squill.runtime.splits import splits_of
from squill.stream import Stream
from squill.testing import assert_same_events, reference

WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: frame.write_parquet(path),
    "csv": lambda frame, path: frame.write_csv(path),
    "ndjson": lambda frame, path: frame.write_ndjson(path),
    "ipc": lambda frame, path: frame.write_ipc(path),
}
Query = Callable[[Stream], Stream]


def write(folder: Path, *times: int, suffix: str = "parquet", **columns: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-0.{suffix}"
    WRITERS[suffix](pl.DataFrame({"t": times, "x": [10 * t for t in times], **columns}), path)
    return path


def years(folder: Path, suffix: str = "parquet") -> Path:
    for year, times in ((2023, (1, 2)), (2024, (3,)), (2025, (4, 5))):
        write(folder / f"year={year}" / "region=eu", *times, suffix=suffix)
    return folder


def rows_of(paths: Any, query: Query = lambda s: s, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows, which are the same in this process, on shards and by the reference."""
    stream = query(sq.scan(paths, start="t", **options))
    with sq.local(cores=4) as cluster:
        on_shards = cluster.scan(paths, start="t", **options).query(query).collect(sort=True)
    answer = stream.collect(sort=True)
    assert on_shards.equals(answer)
    assert_same_events(answer, reference.run(stream))
    return answer.drop("end").rows()


def source_of(stream: Stream) -> FileSource:
    node = rewrite(stream.plan)
    assert isinstance(node, FileSource)
    return node


@pytest.mark.parametrize("suffix", WRITERS)
def test_folders_tell_columns_in_every_format(tmp_path: Path, suffix: str) -> None:
    found = rows_of(years(tmp_path, suffix))
    assert found == [(t, 10 * t, year, "eu") for t, year in ((1, 2023), (2, 2023), (3, 2024), (4, 2025), (5, 2025))]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_query_may_need_nothing_but_folders(tmp_path: Path, suffix: str) -> None:
    assert rows_of(years(tmp_path, suffix), lambda s: s.select("year")) == [
        (1, 2023), (2, 2023), (3, 2024), (4, 2025), (5, 2025),
    ]  # fmt: skip
    relational = sq.scan(tmp_path).group_aggregate("year", n=sq.count())
    assert sorted(relational.collect().rows()) == [(2023, 2), (2024, 1), (2025, 2)]


@pytest.mark.parametrize("suffix", WRITERS)
def test_folders_whose_rows_a_filter_drops_are_not_read(tmp_path: Path, suffix: str) -> None:
    years(tmp_path, suffix)

    def late(s: Stream) -> Stream:
        return s.where((sq.col("year") >= 2024) & (sq.col("x") < 50) & (sq.col("region") + "x" == "eux"))

    assert rows_of(tmp_path, late) == [(3, 30, 2024, "eu"), (4, 40, 2025, "eu")]
    source = source_of(late(sq.scan(tmp_path, start="t")))
    assert {part.path.split("/")[-3] for part in parts_of(source)} == {"year=2024", "year=2025"}
    split = [part.path.split("/")[-3] for item in splits_of(source, 4) for part in item.parts or ()]  # type: ignore[attr-defined]
    assert sorted(split) == ["year=2024", "year=2025"]


def test_a_filter_may_leave_no_folder(tmp_path: Path) -> None:
    assert rows_of(years(tmp_path), lambda s: s.where(sq.col("year") == 1999)) == []


def test_numbers_of_progress_count_the_rows_of_all_folders(tmp_path: Path) -> None:
    table = sq.scan(years(tmp_path)).select("t", "year")
    filtered = table.where(sq.col("year") > 2023).progressive(sq.progress.rows(2))
    expected = [early.frame.filter(sq.col("year") > 2023) for early in table.progressive(sq.progress.rows(2))]
    assert [early.frame.sort("t").rows() for early in filtered] == [frame.sort("t").rows() for frame in expected]


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["2024-01-01", "2024-02-01"], [dt.date(2024, 1, 1), dt.date(2024, 2, 1)]),
        (["01", "12"], [1, 12]),
        (["1.5", "2"], [1.5, 2.0]),
        (["1", "eu"], ["1", "eu"]),
        (["7", "__HIVE_DEFAULT_PARTITION__"], [7, None]),
        (["a%2Fb%20c", "S%C3%A3o%3D1"], ["a/b c", "São=1"]),
        (["x y", "ünï"], ["x y", "ünï"]),
        (["true", "false"], [True, False]),
    ],
)
def test_values_are_read_as_polars_reads_them(tmp_path: Path, names: list[str], values: list[Any]) -> None:
    for t, name in enumerate(names):
        write(tmp_path / f"k={name}", t)
    assert rows_of(tmp_path) == [(t, 10 * t, value) for t, value in enumerate(values)]
    polars = pl.scan_parquet(tmp_path, hive_partitioning=True).collect().sort("t")
    assert polars["k"].to_list() == values
    assert sq.scan(tmp_path, start="t").plan.schema["k"] == polars.schema["k"]


def test_only_folders_below_what_is_given_count(tmp_path: Path) -> None:
    base = years(tmp_path / "year=1999")
    assert rows_of(base)[0] == (1, 10, 2023, "eu")
    assert rows_of(f"{base}/year=2024") == [(3, 30, "eu")]
    assert rows_of(f"{base}/*/*/*.parquet")[2] == (3, 30, 2024, "eu")
    assert rows_of(f"{base}/year=202?/region=eu/part-0.parquet")[2] == (3, 30, 2024, "eu")
    assert rows_of(f"file://{base}")[2] == (3, 30, 2024, "eu")
    assert rows_of(base / "year=2024" / "region=eu" / "part-0.parquet") == [(3, 30)]


def test_a_relative_folder_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    years(tmp_path)
    monkeypatch.chdir(tmp_path)
    for text in (".", "./", "./year=*", "year=*/", "**/*.parquet"):
        assert rows_of(text)[2][:2] == (3, 30)
        assert "year" in sq.scan(text, start="t").plan.schema


def test_a_folder_may_tell_the_time(tmp_path: Path) -> None:
    for day in ("2024-01-02", "2024-01-01"):
        write(tmp_path / f"day={day}", 1)
    stream = sq.scan(tmp_path, start="day")
    assert stream.collect()["start"].to_list() == [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    with sq.local(2) as cluster:
        assert cluster.scan(tmp_path, start="day").collect().equals(stream.collect())


def test_a_column_that_files_hold_is_theirs(tmp_path: Path) -> None:
    write(tmp_path / "k=1", 1, k=["own"])
    assert rows_of(tmp_path) == [(1, 10, "own")]


def test_folders_that_tell_other_columns_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a=1", 1)
    write(tmp_path / "b", 1)
    with pytest.raises(SchemaChangedError, match=r"b/part-0.parquet' is below no such folder, but '.*' below a=…\n"):
        sq.scan(tmp_path, start="t")


def test_a_schema_may_name_what_folders_tell(tmp_path: Path) -> None:
    years(tmp_path, "csv")
    schema = {"t": pl.Int64, "year": pl.String}
    assert rows_of(tmp_path, schema=schema)[0] == (1, "2023", "eu")
    with pytest.raises(SchemaChangedError, match=r"the folder region=eu of '.*' is no Int64, which column 'region' is"):
        sq.scan(tmp_path, start="t", schema={**schema, "region": pl.Int64}).collect()


def test_plans_keep_what_folders_tell_as_text(tmp_path: Path) -> None:
    stream = sq.scan(years(tmp_path), start="t").where(sq.col("year") == 2024)
    assert sq.from_json(stream.to_json()).collect().equals(stream.collect())


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_packed_keys_may_be_folders(tmp_path: Path, suffix: str) -> None:
    assert len(rows_of(years(tmp_path, suffix), packed="year", sorted_by="t")) == 5


def test_folders_of_a_stream_tell_columns_of_files_that_come(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    write(inbox / "k=1", 1)
    seen: list[tuple[Any, ...]] = []
    with sq.local(2) as cluster:

        def run() -> None:
            stream = cluster.stream(inbox, start="t")
            stream.start(
                lambda frame: seen.extend(frame.rows()), checkpoint=tmp_path / "c", until_now=True, complete=False
            ).wait()

        run()
        write(inbox / "k=2", 5)
        run()
        write(inbox / "k=zwei", 9)
        with pytest.raises(SchemaChangedError, match=r"the folder k=zwei of .* is no Int64"):
            run()
    assert [(row[0], row[-1]) for row in seen] == [(1, 1)]


def test_a_table_that_is_read_again_has_the_columns_of_its_folders(tmp_path: Path) -> None:
    write(tmp_path / "k=1", 1)
    with sq.local(1) as cluster:
        table = cluster.scan(tmp_path, refresh="1h")
        assert table.collect().rows() == [(1, 10, 1)]


def test_a_time_name_told_by_a_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "end=1", 1)
    with pytest.raises(PlanError, match="'end'"):
        sq.scan(tmp_path, start="t")
