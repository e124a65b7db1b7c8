from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import squill as sq
from squill.errors import InputError
from squill.plan.fragments import sources_of
from squill.plan.nodes import FileSource, FrameSource
from squill.runtime import splits
from squill.runtime.shard import read_split
from squill.runtime.splits import split_files, split_rows, splits_of


@given(st.integers(0, 1_000), st.integers(1, 50))
def test_row_ranges_cover_all_rows_evenly(rows: int, shards: int) -> None:
    ranges = split_rows(rows, shards)
    assert [low for low, _ in ranges[1:]] == [high for _, high in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1], len(ranges)) == (0, rows, shards)
    sizes = [high - low for low, high in ranges]
    assert max(sizes) - min(sizes) <= 1


def test_frame_is_split_by_rows_in_order() -> None:
    (source,) = sources_of(sq.from_frame({"t": list(range(5))}, start="t").plan)
    parts = [part for part in splits_of(source, 2) if isinstance(part, FrameSource)]
    assert [part.frame["t"].to_list() for part in parts] == [[0, 1], [2, 3, 4]]


def test_blocks_of_a_large_frame_are_dealt_out_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "BLOCK_ROWS", 2)
    (source,) = sources_of(sq.from_frame({"t": list(range(8))}, start="t").plan)
    parts = [part for part in splits_of(source, 2) if isinstance(part, FrameSource)]
    assert [part.frame["t"].to_list() for part in parts] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert [part.blocks for part in parts] == [((0, 2), (4, 2)), ((2, 2), (6, 2))]
    assert "4 rows in 2 blocks" in parts[0].details()


def test_rows_of_a_frame_leave_before_later_blocks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "BLOCK_ROWS", 2)
    (source,) = sources_of(sq.from_frame({"t": [0, 0, 1, 1, None, 3, 3, 3]}, start="t").plan)
    rows = read_split(splits_of(source, 2)[0])
    assert next(rows).sync.tolist() == [0, 0]
    with pytest.raises(InputError, match="start time 't' is null in row 4"):
        next(rows)


def test_promises_are_checked_inside_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "BLOCK_ROWS", 2)
    (source,) = sources_of(sq.from_frame({"t": [5, 5, 6, 6, 4, 4, 7, 7]}, start="t", sorted_by="t").plan)
    with pytest.raises(InputError, match="row 4 is not in the order of sorted_by"):
        list(read_split(splits_of(source, 2)[0]))
    (source,) = sources_of(sq.from_frame({"t": [0] * 8, "k": list("aabbaacc")}, start="t", packed="k").plan)
    with pytest.raises(InputError, match="row 4 takes up a key again"):
        list(read_split(splits_of(source, 2)[0]))


@pytest.mark.parametrize(
    ("sizes", "shards", "expected"),
    [
        ([10, 10, 10, 10], 2, [[0, 1], [2, 3]]),
        ([100, 10, 10, 10], 2, [[0], [1, 2, 3]]),
        ([10], 3, [[], [0], []]),
        ([10, 10, 10], 1, [[0, 1, 2]]),
    ],
)
def test_files_are_shared_out_by_bytes(tmp_path: Path, sizes: list[int], shards: int, expected: object) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(bytes(size))
    chosen = split_files([str(path) for path in paths], shards)
    assert [[int(Path(path).stem) for path in files] for files in chosen] == expected


def test_scan_is_split_by_files(tmp_path: Path) -> None:
    for number in range(4):
        pl.DataFrame({"t": [number]}).write_parquet(tmp_path / f"{number}.parquet")
    (source,) = sources_of(sq.scan(tmp_path, start="t").plan)
    parts = [part for part in splits_of(source, 2) if isinstance(part, FileSource)]
    assert [len(part.paths) for part in parts] == [2, 2]
