"""Paths that no file system can take: one error, whoever is given them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.errors import CheckpointError, ClusterError, DatasetNotFoundError, PlanError, SourceReadError, SquillError

UNFIT = {
    "null": ("a\0b", "it holds a null character"),
    "surrogate": ("a\ud800", r"it holds '\\ud800', which is half a character"),
    "long name": ("x" * 256, "a name in it has 256 bytes, and 255 are allowed"),
    "long name of few letters": ("nowhere/" + "ü" * 128, "a name in it has 256 bytes"),
    "long path": ("a/" * 2000, "it has 4000 bytes, and 3840 are allowed"),
    "long address": ("file:///" + "x" * 256, "a name in it has 256 bytes"),
    "null in an address": ("file:///a%00b", "it holds a null character"),
}


def stream() -> sq.Stream:
    return sq.from_frame({"t": [1, 2], "x": [3, 4]}, start="t")


def sharded() -> sq.ShardedStream:
    return sq.local(cores=1).from_frame({"t": [1, 2], "x": [3, 4]}, start="t")


def live() -> sq.ShardedStream:
    return sq.local(cores=1).stream(sq.source({"t": pl.Int64}, start="t")).query(lambda s: s)


def pushed() -> sq.Stream:
    return sq.source({"t": pl.Int64}, start="t")


TAKERS: dict[str, Callable[[str], object]] = {
    "scan": sq.scan,
    "scan of several": lambda path: sq.scan([path]),
    "scan with a schema": lambda path: sq.scan(path, schema={"t": pl.Int64}),
    "cluster.scan": lambda path: sq.local(cores=1).scan(path),
    "stream": lambda path: sq.local(cores=1).stream(path, start="t"),
    "warehouse": lambda path: sq.local(cores=1, warehouse=path),
    "to_parquet": lambda path: stream().to_parquet(path),
    "to_ipc": lambda path: stream().to_ipc(path),
    "to_storage": lambda path: sharded().to_storage(path),
    "to_ipc of shards": lambda path: sharded().to_ipc(path),
    "sink": lambda path: live().start(path),
    "folder": sq.folder,
    "start: checkpoint": lambda path: live().start(print, checkpoint=path),
    "start: bootstrap": lambda path: live().start(print, bootstrap=path),
    "checkpoint": lambda path: pushed().subscribe(print).checkpoint(path),
    "restore": lambda path: pushed().subscribe(print, restore=path),
    "resume: folder": lambda path: sq.resume("x", folder=path),
    "resume: warehouse": lambda path: sq.resume("x", warehouse=path),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("taker", TAKERS)
def test_what_can_be_no_path_is_refused_wherever_one_is_taken(taker: str, unfit: str) -> None:
    path, said = UNFIT[unfit]
    with pytest.raises((PlanError, CheckpointError), match=rf"is no path: {said}") as caught:
        TAKERS[taker](path)
    assert caught.value.hint is not None
    assert not any(Path().iterdir())


@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_neither_text_nor_a_path_is_refused(taker: str) -> None:
    with pytest.raises(SquillError, match=r"3|int"):
        TAKERS[taker](3)  # type: ignore[arg-type]


def test_a_name_that_leaves_no_room_for_an_unfinished_file_is_refused() -> None:
    with pytest.raises(PlanError, match=r"to_parquet: .* cannot be written: .*File name too long"):
        stream().to_parquet("x" * 250)
    with pytest.raises(ClusterError, match=r"to_storage: .* cannot be written: File name too long"):
        sharded().to_storage("x" * 250)
    assert not any(Path().iterdir())


def test_a_path_around_a_ring_of_links_is_refused() -> None:
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    for take in (sq.scan, lambda path: sharded().to_storage(path)):
        with pytest.raises(PlanError, match="'a' cannot be looked at: Too many levels of symbolic links"):
            take("a")


def test_a_file_whose_name_is_no_utf8_is_named() -> None:
    pl.DataFrame({"t": [1]}).write_parquet("a.parquet")
    os.replace("a.parquet", b"\xff.parquet")  # noqa: PTH105  (a Path is text)
    with pytest.raises(SourceReadError, match=r"the name of '.*\\udcff.parquet' cannot be read: it holds"):
        sq.scan(Path.cwd())


@pytest.mark.parametrize("url", ["sqlite:///a\ud800", "sqlite:///a\0b", "sqlite:///" + "x" * 256])
def test_a_catalog_at_no_path_is_refused(url: str) -> None:
    with pytest.raises(PlanError, match=r"catalog: .* is no path"):
        sq.local(cores=1, catalog=url).datasets()
    with pytest.raises(PlanError, match=r"catalog: .* is no path"):
        sq.resume("x", catalog=url)


@pytest.mark.parametrize("name", ["a\ud800", "a\0b"])
def test_a_dataset_of_no_name_is_neither_made_nor_found(name: str) -> None:
    with sq.local(cores=1, warehouse="w") as cluster:
        rows = cluster.from_frame({"x": [1]})
        rows.to_memory("there")
        with pytest.raises(PlanError, match=r"to_memory: .* is no name: it holds"):
            rows.to_memory(name)
        for ask in (cluster.dataset, cluster.remove, cluster.catalog.lineage):
            with pytest.raises(DatasetNotFoundError, match="the datasets are: there"):
                ask(name)
        assert cluster.search(name) == []
        with pytest.raises(DatasetNotFoundError, match="there is no dataset 5"):
            cluster.dataset(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("taker", TAKERS)
def test_no_path_at_all_is_refused(taker: str) -> None:
    with pytest.raises((PlanError, CheckpointError), match=r"the path is empty\nHint: give '\.'"):
        TAKERS[taker]("")


def test_a_path_may_begin_at_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with sq.local(cores=1, warehouse="~/house") as cluster:
        made = cluster.from_frame({"x": [1, 2]}).to_storage("~/out", name="out")
        assert made.path == str(tmp_path / "home" / "out")
        for given in ("~/out", "~/out/", Path("~/out"), "~/*/*.parquet", ["~/out"]):
            assert cluster.scan(given).collect().height == 2
    assert {path.name for path in tmp_path.glob("home/*")} == {"out", "house"}
    with pytest.raises(SourceReadError, match="matches no file"):
        sq.scan("~nobody-of-this-name/out")
