"""Files and folders whose names hold spaces, letters of all kinds, and what a glob would read as a mark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.testing import assert_same_events, reference

WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: frame.write_parquet(path),
    "csv": lambda frame, path: frame.write_csv(path),
    "ndjson": lambda frame, path: frame.write_ndjson(path),
    "ipc": lambda frame, path: frame.write_ipc(path),
}
ODD = "a [1] *ünï?☃"


def count(rows: sq.ShardedStream) -> sq.ShardedStream:
    return rows.rekey("k").redistribute().query(lambda s: s.tumbling_window(10).count())


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_name_is_no_glob(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    WRITERS[suffix](pl.DataFrame({"t": [1, 2, 2], "k": [1, 1, 2]}), folder / f"p[1].{suffix}")
    WRITERS[suffix](pl.DataFrame({"t": [5], "k": [9]}), folder / f"p1.{suffix}")
    for paths in (folder, [folder / f"p[1].{suffix}", folder / f"p1.{suffix}"]):
        stream = sq.scan(paths, start="t")
        assert stream.collect()["k"].sort().to_list() == [1, 1, 2, 9]
        assert_same_events(stream.collect(), reference.run(stream))
        with sq.local(cores=2) as cluster:
            assert_same_events(cluster.scan(paths, start="t").collect(), stream.collect())


def test_links_are_followed_to_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    pl.DataFrame({"t": [1], "k": [1]}).write_parquet(tmp_path / "real" / "a.parquet")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "b.parquet").symlink_to(tmp_path / "real" / "a.parquet")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "above" / "year=2024").mkdir(parents=True)
    (tmp_path / "above" / "year=2024" / "part").symlink_to(tmp_path / "real")
    (tmp_path / "above" / "year=2024" / "again").symlink_to(tmp_path / "above")
    assert sq.scan(tmp_path / "above", start="t").collect().rows() == [(1, 2, 1, 2024)]
    for path in (tmp_path / "links", tmp_path / "folder", tmp_path / "links" / "b.parquet"):
        assert sq.scan(path, start="t").collect().rows() == [(1, 2, 1)]


def test_datasets_and_streams_live_in_folders_of_any_name(tmp_path: Path) -> None:
    base = tmp_path / ODD
    inbox = base / "in [2]"
    inbox.mkdir(parents=True)
    pl.DataFrame({"t": [1, 2, 2, 15], "k": [1, 1, 2, 1]}).write_parquet(inbox / "a.parquet")
    with sq.local(cores=2, warehouse=base / "w") as cluster:
        expected = count(cluster.scan(inbox, start="t")).collect(sort=True)
        stored = base / "d [3]"
        count(cluster.scan(inbox, start="t")).to_storage(stored)
        count(cluster.scan(inbox, start="t")).to_storage(stored, mode="overwrite")
        assert cluster.scan(stored).collect(sort=True).equals(expected)
        seen: list[pl.DataFrame] = []
        for sink in (seen.append, base / "out [4]"):
            live = count(cluster.stream(inbox, start="t"))
            live.start(sink, checkpoint=base / f"c {callable(sink)} [5]", until_now=True).wait()
        assert pl.concat(seen).sort("start", "k").equals(expected)
        found = sq.scan(base / "out [4]", start="start", end="end").collect(sort=True)
        assert found.equals(expected)
