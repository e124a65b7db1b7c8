"""Rows that are promised to be sorted, and are not so from one shard to the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import InputError
from squill.plan.nodes import FilePart, FileSource
from squill.runtime import sorted_borders

ROWS = 400
HALF = ROWS // 2
SWAPPED = pl.DataFrame({"t": [*range(HALF, ROWS), *range(HALF)], "x": 1})
"""In order within each half, and so within each of two shards."""


@pytest.mark.parametrize("start", [None, "t"])
def test_rows_of_a_frame_that_descend_between_shards_are_noticed(start: str | None) -> None:
    with sq.local(cores=2) as cluster:
        with pytest.raises(InputError, match=rf"row {HALF} is not in the order of sorted_by=\[t\]"):
            cluster.from_frame(SWAPPED, start=start, sorted_by="t").collect()
        assert cluster.from_frame(SWAPPED, start=start, sorted_by="t", trust=True).collect().height == ROWS
        assert cluster.from_frame(SWAPPED.sort("t"), start=start, sorted_by="t").collect().height == ROWS


def test_parts_of_files_that_descend_between_shards_are_noticed(tmp_path: Path) -> None:
    SWAPPED.write_parquet(tmp_path / "0.parquet", row_group_size=HALF)
    with sq.local(cores=2) as cluster:
        with pytest.raises(InputError, match=rf"0.parquet': row {HALF} is not in the order of sorted_by=\[t\]"):
            cluster.scan(tmp_path, sorted_by="t").collect()
        assert cluster.scan(tmp_path, sorted_by="t", trust=True).collect().height == ROWS


def test_files_that_descend_between_shards_are_noticed(tmp_path: Path) -> None:
    for number, low in enumerate([0, ROWS, HALF]):
        SWAPPED.sort("t").slice(low, HALF).write_parquet(tmp_path / f"{number}.parquet")  # the second has no rows
    with sq.local(cores=3) as cluster:
        assert cluster.scan(tmp_path, sorted_by="t").collect().height == ROWS
        SWAPPED.tail(1).write_parquet(tmp_path / "3.parquet")
        with pytest.raises(InputError, match=r"3.parquet': row 0 is not in the order of sorted_by=\[t\]"):
            cluster.scan(tmp_path, sorted_by="t").collect()


@pytest.mark.parametrize(
    ("frame", "sorted_by", "is_read"),
    [
        (pl.DataFrame({"t": range(ROWS)}), "t", False),
        (pl.DataFrame({"t": [5] * ROWS}), "t", False),
        (pl.DataFrame({"t": [5] * ROWS, "k": range(ROWS)}), ["t", "k"], True),
        (pl.DataFrame({"t": [None] * HALF + list(range(HALF))}), "t", True),
        (pl.DataFrame({"t": [row / 2 for row in range(ROWS)]}), "t", True),
    ],
)
def test_rows_are_read_only_where_statistics_leave_room_for_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: pl.DataFrame, sorted_by: str | list[str], is_read: bool
) -> None:
    read: list[FileSource] = []
    check = sorted_borders._check_rows

    def noted(source: FileSource, parts: Sequence[FilePart]) -> None:
        read.append(source)
        check(source, parts)

    monkeypatch.setattr(sorted_borders, "_check_rows", noted)
    frame.write_parquet(tmp_path / "0.parquet", row_group_size=HALF)
    with sq.local(cores=2) as cluster:
        assert cluster.scan(tmp_path, sorted_by=sorted_by).collect().height == ROWS
    assert bool(read) == is_read


def test_rows_that_a_filter_drops_break_no_promise(tmp_path: Path) -> None:
    SWAPPED.write_parquet(tmp_path / "0.parquet", row_group_size=HALF)
    with sq.local(cores=2) as cluster:
        rows = cluster.sharded(sq.scan(tmp_path, sorted_by="t").where(sq.col("t") < HALF))
        assert rows.collect().height == HALF


def test_keys_are_unique_within_each_shard() -> None:
    twice = {"k": [*range(HALF), *range(HALF)]}
    with pytest.raises(InputError, match=rf"row {HALF} repeats a key of unique=\[k\]"):
        sq.from_frame(twice, unique="k").collect()
    with sq.local(cores=2) as cluster:
        assert cluster.from_frame(twice, unique="k").collect().height == ROWS
        asked = sq.from_frame(twice).group_aggregate("k", n=sq.count()).where(sq.col("n") > 1)
        assert asked.collect(on=cluster).height == HALF


def test_order_is_looked_at_where_arrow_cannot_read_what_polars_can(tmp_path: Path) -> None:
    for number, low in enumerate([HALF, 0]):
        rows = pl.Series("t", range(low, low + HALF), pl.Int128)
        pl.DataFrame([rows]).write_parquet(tmp_path / f"{number}.parquet")
    with sq.local(cores=2) as cluster, pytest.raises(InputError, match=r"1.parquet': row 0 is not in the order"):
        cluster.scan(tmp_path, sorted_by="t").collect()


def test_the_order_of_an_enum_is_its_own_and_not_that_of_its_text(tmp_path: Path) -> None:
    levels = pl.Enum(["b", "a"])
    for number, level in enumerate(["a", "b"]):
        pl.DataFrame([pl.Series("t", [level] * HALF, levels)]).write_parquet(tmp_path / f"{number}.parquet")
    with sq.local(cores=2) as cluster, pytest.raises(InputError, match=r"1.parquet': row 0 is not in the order"):
        cluster.scan(tmp_path, sorted_by="t").collect()
