from __future__ import annotations

import datetime as dt
import pickle
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import squill as sq
from squill.errors import InputError, SourceReadError
from squill.plan.fragments import sources_of
from squill.plan.nodes import FileSource, FrameSource
from squill.plan.rewrite import rewrite
from squill.runtime import splits
from squill.runtime.shard import read_split
from squill.runtime.shares import neighbours, split_rows
from squill.runtime.splits import splits_of


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
def test_neighbours_stay_together(sizes: list[int], shards: int, expected: object) -> None:
    assert neighbours(sizes, shards) == expected


def file_parts(stream: sq.Stream, shards: int) -> list[FileSource]:
    (source,) = sources_of(rewrite(stream.plan))
    return [part for part in splits_of(source, shards) if isinstance(part, FileSource)]


def starts_of(part: FileSource) -> list[int]:
    return [t for batch in read_split(part) for t in batch.sync.tolist()]


def test_row_groups_are_dealt_out_in_order_of_time(tmp_path: Path) -> None:
    pl.DataFrame({"t": [40, 41, 0, 1]}).write_parquet(tmp_path / "0.parquet", row_group_size=2)
    pl.DataFrame({"t": [30, 31, 20, 21]}).write_parquet(tmp_path / "1.parquet", row_group_size=2)
    parts = file_parts(sq.scan(tmp_path, start="t"), 2)
    assert [starts_of(part) for part in parts] == [[0, 1, 30, 31], [20, 21, 40, 41]]
    assert f"2 parts: {tmp_path}/0.parquet rows 2..4; {tmp_path}/1.parquet rows 0..2" in parts[0].details()
    assert pickle.loads(pickle.dumps(parts[0].parts)) == parts[0].parts


def test_machines_that_do_not_wait_get_neighbouring_row_groups_as_one(tmp_path: Path) -> None:
    for number in range(2):
        times = pl.DataFrame({"t": range(32 * number, 32 * (number + 1))})
        times.write_parquet(tmp_path / f"{number}.parquet", row_group_size=1)
    (source,) = sources_of(rewrite(sq.scan(tmp_path, start="t").plan))
    found = [part for part in splits_of(source, 4, cores=2) if isinstance(part, FileSource)]
    first, second, *_ = [starts_of(part) for part in found]
    assert sorted(first + second) == [t for begin in (0, 16, 32, 48) for t in range(begin, begin + 8)]
    assert abs(len(first) - len(second)) <= 8
    assert sorted(t for part in found for t in starts_of(part)) == list(range(64))
    (alone, _) = [part for part in splits_of(source, 2, cores=1) if isinstance(part, FileSource)]
    assert alone.parts is not None
    assert [(Path(part.path).name, part.first, part.size, part.low) for part in alone.parts] == [
        ("0.parquet", 0, 8, 0), ("0.parquet", 16, 8, 16), ("1.parquet", 0, 8, 32), ("1.parquet", 16, 8, 48),
    ]  # fmt: skip


@pytest.mark.parametrize(("shards", "cores"), [(3, 2), (5, 3), (9, 4), (2, 3)])
def test_machines_of_which_the_last_has_fewer_shards_read_all_rows(tmp_path: Path, shards: int, cores: int) -> None:
    pl.DataFrame({"t": range(72)}).write_parquet(tmp_path / "0.parquet", row_group_size=1)
    (source,) = sources_of(rewrite(sq.scan(tmp_path, start="t").plan))
    found = [starts_of(part) for part in splits_of(source, shards, cores=cores) if isinstance(part, FileSource)]
    assert len(found) == shards
    assert sorted(t for part in found for t in part) == list(range(72))
    assert max(map(len, found)) <= 2 * min(map(len, found))


def test_rows_without_times_are_read_in_one_piece_of_each_file(tmp_path: Path) -> None:
    for number in range(4):
        pl.DataFrame({"x": range(8)}).write_parquet(tmp_path / f"{number}.parquet", row_group_size=2)
    parts = file_parts(sq.scan(tmp_path), 2)
    assert [[(part.first, part.size) for part in found.parts or ()] for found in parts] == [[(0, 8), (0, 8)]] * 2


def test_row_groups_without_a_row_to_keep_are_not_read(tmp_path: Path) -> None:
    day = dt.datetime(2020, 1, 1)
    times = [day + dt.timedelta(days=n) for n in range(6)]
    frame = pl.DataFrame({"t": times, "k": list("aabbcc"), "x": [1.0] * 6})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=2)
    scan = sq.scan(tmp_path, start="t", keep_time=True)

    def groups(predicate: pl.Expr) -> list[int]:
        (split,) = file_parts(scan.where(predicate), 1)
        assert split.parts is not None
        return [part.first // 2 for part in split.parts]

    assert groups(sq.col("k") == "b") == [1]
    assert groups((sq.col("t") >= times[1]) & (sq.col("k") < "c")) == [0, 1]
    assert groups((sq.col("t") > times[3]) & (sq.col("x") > 5)) == [2]
    assert groups(sq.col("x") > 5) == [0, 1, 2]  # a float may be NaN, of which statistics say nothing
    assert file_parts(scan.where(sq.col("k") == "z"), 2)[0].parts == ()
    assert scan.where(sq.col("k") == "z").collect().is_empty()


@pytest.mark.parametrize("names", [("a.b", "a"), ("a", "a.b")])
def test_a_column_is_not_taken_for_the_field_of_another(tmp_path: Path, names: tuple[str, str]) -> None:
    frame = pl.DataFrame({"a.b": [1, 2, 3], "a": [{"b": 100}, {"b": 200}, {"b": 300}]})
    frame.select(names).write_parquet(tmp_path / "0.parquet", row_group_size=1)
    (part,) = file_parts(sq.scan(tmp_path).where(sq.col("a.b") == 2), 1)
    assert part.parts is not None
    assert [(item.first, item.size) for item in part.parts] == [(1, 1)]


def test_parts_weigh_what_is_read_of_them(tmp_path: Path) -> None:
    texts = ["".join(chr(97 + (n * m) % 26) for m in range(99)) for n in range(1_000)]
    pl.DataFrame({"t": [0] * 4, "s": ["x"] * 4}).write_parquet(tmp_path / "0.parquet")
    pl.DataFrame({"t": [1] * 1_000, "s": texts}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"t": [2] * 4, "s": ["x"] * 4}).write_parquet(tmp_path / "2.parquet")
    whole = file_parts(sq.scan(tmp_path, start="t"), 2)
    assert [len(part.paths) for part in whole] == [2, 1]
    times = file_parts(sq.scan(tmp_path, start="t").select(one=1), 2)
    assert times[0].read == ()
    assert [len(part.paths) for part in times] == [2, 1]


def test_rows_of_files_leave_before_later_parts_are_read(tmp_path: Path) -> None:
    for number in range(8):
        pl.DataFrame({"t": [number]}).write_parquet(tmp_path / f"{number}.parquet")
    split = file_parts(sq.scan(tmp_path, start="t"), 2)[0]
    rows = read_split(split)
    assert next(rows).sync.tolist() == [0]
    Path(split.paths[3]).unlink()  # one of them is begun ahead
    assert [next(rows).sync.tolist() for _ in range(2)] == [[2], [4]]
    with pytest.raises(SourceReadError, match=r"6.parquet' is gone"):
        next(rows)


def test_a_damaged_row_group_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"t": range(1_000)}).write_parquet(path, row_group_size=100)
    content = bytearray(path.read_bytes())
    content[200:600] = bytes(400)
    path.write_bytes(content)
    with sq.local(2) as cluster, pytest.raises(SourceReadError, match=r"a.parquet' cannot be read as parquet: .+"):
        cluster.scan(tmp_path, start="t").collect()


GONE = r"a.%s' is gone, or not seen from this machine; it was there when the query was made\nHint: put it back"


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson", "ipc"])
def test_files_that_are_gone_are_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    writer = getattr(pl.DataFrame({"t": [1, 2]}), f"write_{kind}")
    with sq.local(2) as cluster:
        for scan in (sq.scan, cluster.scan, partial(cluster.scan, packed="t")):
            writer(path)
            query = scan(tmp_path, start="t", sorted_by="t")
            path.unlink()
            with pytest.raises(SourceReadError, match=GONE % kind):
                query.collect()


@pytest.mark.parametrize("start", [None, "t"])
@pytest.mark.parametrize("cores", [1, 2, 3])
def test_a_file_that_is_named_twice_is_read_twice(tmp_path: Path, start: str | None, cores: int) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"t": range(100)}).write_parquet(path, row_group_size=10)
    with sq.local(cores) as cluster:
        assert sq.scan([path, path], start=start).collect(on=cluster).height == 200
        assert cluster.scan([str(path), str(tmp_path / "a*.parquet")], start=start).collect().height == 200
