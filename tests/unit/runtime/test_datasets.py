from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.catalog import Catalog
from squill.errors import ClusterError, DatasetNotFoundError, InputError, PlanError, SourceReadError
from squill.plan.dataset import MANIFEST
from squill.runtime import datasets, memory, splits, staging
from squill.runtime.memory import MemoryFolder, is_alive, new_owner

FRAME = {"t": list(range(40)), "k": [t % 7 for t in range(40)]}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[sq.Cluster]:
    with sq.local(cores=2, warehouse=tmp_path / "warehouse") as started:
        yield started


def by_key(cluster: sq.Cluster) -> sq.ShardedStream:
    return cluster.from_frame(FRAME, start="t").rekey("k").redistribute(3)


def actions(cluster: sq.Cluster) -> list[tuple[str, str, str]]:
    """What was done for datasets; queries that only ask are recorded too."""
    return [(run.action, str(run.dataset), run.state) for run in cluster.catalog.runs() if run.dataset is not None]


def test_stored_dataset_is_found_by_name(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = by_key(cluster)
    plan.to_storage(tmp_path / "out", name="Ad counts")
    (found,) = cluster.datasets()
    assert (found.name, found.rows, found.keys, found.shards) == ("Ad counts", 40, ("k",), 3)
    assert cluster.search("COUNT") == [found]
    assert cluster.search("Ad caunts") == [found]
    assert cluster.search("zebra") == []
    again = cluster.dataset("Ad counts")
    assert again.collect(sort=True).equals(plan.collect(sort=True))
    assert "channel" not in again.redistribute().explain()
    assert "redistribute by k" in cluster.catalog.lineage("Ad counts").explain
    assert actions(cluster) == [("to_storage", "Ad counts", "done")]


def test_other_clients_of_the_catalog_find_it(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    with sq.local(cores=1, warehouse=tmp_path / "warehouse") as other:
        assert other.dataset("counts").collect().height == 40
    assert [dataset.name for dataset in cluster.datasets()] == ["counts"]


def test_unknown_names_list_near_ones(cluster: sq.Cluster) -> None:
    by_key(cluster).to_memory("adcounts")
    for call in (cluster.dataset, cluster.remove):
        with pytest.raises(DatasetNotFoundError, match="the datasets are: adcounts\nHint: did you mean 'adcounts'"):
            call("adcuonts")


def test_looking_for_datasets_makes_no_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sq.local(cores=1) as cluster:
        assert cluster.datasets() == cluster.search("counts") == []
        for ask in (cluster.dataset, cluster.remove):
            with pytest.raises(DatasetNotFoundError, match="there is no dataset 'counts'; the datasets are: none"):
                ask("counts")
        with pytest.raises(PlanError, match="to_memory: '' is no name"):
            cluster.from_frame(FRAME).to_memory("")
        with pytest.raises(PlanError, match="search: 5 is no text"):
            cluster.search(5)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["s3://bucket/out", "hdfs://host/out"])
def test_addresses_are_not_taken_for_folders(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sq.local(cores=1) as cluster:
        rows = cluster.from_frame(FRAME)
        for write in (rows.to_storage, rows.to_ipc):
            with pytest.raises(PlanError, match=f"'{path}' is an address of .*mounted folders only\nHint: .*all mach"):
                write(path)
        with pytest.raises(PlanError, match="to_storage: None is no path"):
            rows.to_storage(None)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match=f"warehouse: '{path}' is an address"):
            sq.local(warehouse=path)
    assert not list(tmp_path.iterdir())


def test_file_addresses_are_paths(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(f"file://{tmp_path}/the%20answer")
    assert sq.scan(tmp_path / "the answer").collect().height == 40


def test_lost_file_is_made_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    dataset = by_key(cluster).to_storage(tmp_path / "out", name="counts")
    stream = cluster.dataset("counts")
    expected = stream.collect(sort=True)
    Path(dataset.paths[1]).unlink()
    # A plan that was made before finds its files again too.
    assert stream.collect(sort=True).equals(expected)
    Path(dataset.paths[0]).write_bytes(b"cut")
    assert cluster.dataset("counts").collect(sort=True).equals(expected)
    shutil.rmtree(tmp_path / "out")
    assert stream.query(lambda s: s).collect(sort=True).equals(expected)
    assert [action for action, _, _ in actions(cluster)] == ["to_storage", "recompute", "recompute", "recompute"]
    assert [path.name for path in sorted((tmp_path / "out").glob("*.parquet"))] == [
        Path(path).name for path in dataset.paths
    ]


def test_scan_of_a_named_folder_finds_lost_files_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    dataset = by_key(cluster).to_storage(tmp_path / "out", name="counts")
    Path(dataset.paths[2]).unlink()
    assert cluster.scan(tmp_path / "out").collect().height == 40


@pytest.mark.parametrize("kind", ["parquet", "ipc"])
def test_scan_of_a_named_folder_finds_files_again_that_were_cut_short(
    cluster: sq.Cluster, tmp_path: Path, kind: str
) -> None:
    dataset = by_key(cluster).to_storage(tmp_path / "out", name="counts", format=kind)
    stream = cluster.scan(tmp_path / "out")
    expected = stream.collect(sort=True)
    for path in dataset.paths[:2]:
        os.truncate(path, Path(path).stat().st_size // 2)
        assert stream.collect(sort=True).equals(expected)
    os.truncate(dataset.paths[0], 0)
    assert cluster.scan(tmp_path / "out").collect(sort=True).equals(expected)


def test_a_manifest_that_was_cut_short_is_made_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    expected = by_key(cluster).collect(sort=True)
    manifest = tmp_path / "out" / MANIFEST
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    source = cluster.scan(tmp_path / "out")
    manifest.write_text(manifest.read_text()[:100])
    assert cluster.dataset("counts").collect(sort=True).equals(expected)
    manifest.write_text(manifest.read_text()[:100])
    assert source.collect(sort=True).equals(expected)
    assert cluster.scan(tmp_path / "out").collect(sort=True).equals(expected)
    assert [action for action, *_ in actions(cluster)] == ["to_storage", "recompute", "recompute"]


def test_a_dataset_whose_manifest_was_cut_short_is_removed(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    manifest = tmp_path / "out" / MANIFEST
    manifest.write_text(manifest.read_text()[:100])
    cluster.remove("counts")
    assert cluster.datasets() == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lost", ["a file", "all files", "no file"])
def test_a_dataset_that_lost_its_manifest_is_made_again_and_removed(
    cluster: sq.Cluster, tmp_path: Path, lost: str
) -> None:
    stored = by_key(cluster).to_storage(tmp_path / "out", name="counts")
    expected = cluster.dataset("counts").collect(sort=True)
    shutil.rmtree((tmp_path / "out" / MANIFEST).parent)
    for path in stored.paths[: {"a file": 1, "all files": 3, "no file": 0}[lost]]:
        Path(path).write_bytes(b"")
    assert cluster.dataset("counts").collect(sort=True).equals(expected)
    shutil.rmtree((tmp_path / "out" / MANIFEST).parent, ignore_errors=True)
    cluster.remove("counts")
    assert not (tmp_path / "out").exists()


def test_a_dataset_without_a_manifest_beside_files_of_others_is_left_alone(cluster: sq.Cluster, tmp_path: Path) -> None:
    stored = by_key(cluster).to_storage(tmp_path / "out", name="counts")
    shutil.rmtree((tmp_path / "out" / MANIFEST).parent)
    Path(stored.paths[0]).unlink()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(PlanError, match="is not empty and is no dataset of Squill"):
        cluster.dataset("counts")
    cluster.remove("counts")
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == ["notes.txt", *sorted(
        Path(path).name for path in stored.paths[1:]
    )]  # fmt: skip


def test_a_manifest_cut_short_among_files_of_others_is_left_alone(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    cluster.from_frame({"x": [1]}).to_storage(tmp_path / "out", mode="overwrite")
    (tmp_path / "out" / MANIFEST).write_text("{")
    with pytest.raises(SourceReadError, match=r"the manifest of the dataset .* cannot be read"):
        cluster.dataset("counts")
    assert list((tmp_path / "out").glob("*.parquet"))


def test_lost_inputs_of_lost_datasets_are_made_again_first(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "one", name="one")
    cluster.dataset("one").query(lambda g: g.with_duration(9).count()).to_memory("two")
    cluster.dataset("two").query(lambda g: g.shift(1)).to_storage(tmp_path / "three", name="three")
    expected = cluster.dataset("three").collect(sort=True)
    assert cluster.catalog.lineage("three").inputs == ("two",)
    for folder in ("one", "three"):
        shutil.rmtree(tmp_path / folder)
    memory.forget_held(cluster.catalog.require("two", "test").dataset.version)
    assert cluster.dataset("three").collect(sort=True).equals(expected)
    assert {dataset for action, dataset, _ in actions(cluster) if action == "recompute"} == {"one", "two", "three"}


def test_lost_dataset_that_was_made_from_itself_is_an_error(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    cluster.dataset("counts").query(lambda s: s.where(sq.col("k") > 0)).to_storage(
        tmp_path / "out", name="counts", mode="overwrite"
    )
    for file in (tmp_path / "out").glob("**/*.parquet"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(
            ClusterError, match="the rows of the dataset 'counts' are lost, and its plan reads 'counts' its"
        ):
            cluster.dataset("counts").collect()


def test_lost_file_without_a_name_is_an_error(cluster: sq.Cluster, tmp_path: Path) -> None:
    dataset = by_key(cluster).to_storage(tmp_path / "out")
    Path(dataset.paths[0]).unlink()
    with pytest.raises(SourceReadError, match="are lost, and no catalog knows its plan"):
        cluster.scan(tmp_path / "out").collect()


def test_plan_with_too_many_rows_is_kept_as_text(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "PLAN_BYTES", 10)
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    assert cluster.catalog.lineage("counts").plan is None
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ClusterError, match="'counts' are lost, and its plan is not kept: it reads frames of"):
        cluster.dataset("counts")


def test_folder_written_anew_without_a_name_is_not_replaced(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    stream = cluster.dataset("counts")
    cluster.from_frame({"t": [1]}, start="t").to_storage(tmp_path / "out", mode="overwrite")
    with pytest.raises(SourceReadError, match="holds another dataset now"):
        cluster.dataset("counts")
    with pytest.raises(SourceReadError, match="holds another dataset now"):
        stream.collect()
    cluster.remove("counts")
    assert cluster.scan(tmp_path / "out").collect().height == 1


def test_overwritten_dataset_is_the_new_one(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    stream = cluster.dataset("counts")
    small = cluster.from_frame({"t": [1]}, start="t")
    with pytest.raises(PlanError, match="there is a dataset 'counts' already"):
        small.to_storage(tmp_path / "other", name="counts")
    assert not (tmp_path / "other").exists()
    small.to_storage(tmp_path / "out", name="counts", mode="overwrite")
    assert cluster.dataset("counts").collect().height == 1
    with pytest.raises(SourceReadError, match="'counts' was written anew since this query was made"):
        stream.collect()


def test_a_dataset_that_the_catalog_cannot_read_is_forgotten_and_leaves_its_files(
    cluster: sq.Cluster, tmp_path: Path
) -> None:
    stored = by_key(cluster).to_storage(tmp_path / "clicks", name="clicks")
    with sqlite3.connect(tmp_path / "warehouse" / "catalog.sqlite") as database:
        database.execute("UPDATE squill_datasets SET manifest = '[]'")
    with pytest.raises(ClusterError, match="what it says of the dataset 'clicks' cannot be read"):
        cluster.dataset("clicks")
    cluster.remove("clicks")
    assert cluster.datasets() == []
    assert all(Path(path).is_file() for path in stored.paths)


def test_removed_dataset_is_gone_with_its_files(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    cluster.remove("counts")
    assert cluster.datasets() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["warehouse"]


def test_failed_run_is_recorded_and_leaves_nothing(cluster: sq.Cluster, tmp_path: Path) -> None:
    broken = cluster.from_frame({"t": [1, None]}, start="t")
    with pytest.raises(InputError):
        broken.to_storage(tmp_path / "out", name="counts")
    with pytest.raises(InputError):
        broken.to_memory("counts")
    assert cluster.datasets() == []
    assert actions(cluster) == [("to_storage", "counts", "failed"), ("to_memory", "counts", "failed")]
    assert "is null" in cluster.catalog.errors()[0].message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["warehouse"]


def test_folder_under_a_new_name_is_found_by_that(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="old")
    dataset = by_key(cluster).to_storage(tmp_path / "out", name="new", mode="overwrite")
    Path(dataset.paths[0]).unlink()
    assert cluster.scan(tmp_path / "out").collect().height == 40
    with pytest.raises(SourceReadError, match=r"the folder of the dataset 'old', .* holds another dataset now"):
        cluster.dataset("old")


def test_cancelled_run_leaves_nothing(cluster: sq.Cluster, tmp_path: Path) -> None:
    first = iter([signal.SIGINT])

    def cancel(frame: pl.DataFrame) -> pl.DataFrame:
        for number in first:
            os.kill(os.getpid(), number)
            time.sleep(0.5)
        return frame

    source = cluster.from_frame({"t": list(range(300_000))}, start="t", shards=1, keep_time=True)
    plan = source.query(lambda s: s.map_batches(cancel, schema={"t": pl.Int64}))
    with pytest.raises(KeyboardInterrupt):
        plan.to_storage(tmp_path / "out", name="counts")
    assert actions(cluster) == [("to_storage", "counts", "cancelled")]
    assert cluster.datasets() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["warehouse"]


def first_time(moment: str, trouble: BaseException, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step, which fails the first time: before anything is done, or when all is."""
    left = iter([trouble])

    def failing(*given: Any, **named: Any) -> Any:
        found = [] if moment == "before" else [step(*given, **named)]
        for error in left:
            raise error
        return found[0] if found else step(*given, **named)

    return failing


@pytest.mark.parametrize("step", ["rmtree", "put", "end_run"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_in_the_last_moments_leaves_one_whole_answer(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    before = sorted(path.name for path in tmp_path.iterdir())
    new = by_key(cluster).query(lambda g: g.where(sq.col("k") < 3))
    owner: Any = SimpleNamespace(rmtree=shutil.rmtree) if step == "rmtree" else Catalog
    monkeypatch.setattr(owner, step, first_time(moment, KeyboardInterrupt(), getattr(owner, step)))
    monkeypatch.setattr(staging, "shutil", owner if step == "rmtree" else shutil)
    with pytest.raises(KeyboardInterrupt):
        new.to_storage(tmp_path / "out", name="counts", mode="overwrite")
    found = cluster.dataset("counts").collect(sort=True)
    assert found.height in (40, new.collect().height)
    assert found.equals(cluster.scan(tmp_path / "out").collect(sort=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert "running" not in {run.state for run in cluster.runs()}


def test_an_answer_whose_name_cannot_be_given_leaves_the_older_one(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for folder in ("out", "new/out", "empty"):
        failing = first_time("before", ClusterError("no server", "wait."), Catalog.put)
        monkeypatch.setattr(Catalog, "put", failing)
        with pytest.raises(ClusterError, match="no server"):
            by_key(cluster).to_storage(tmp_path / folder, name="counts", mode="overwrite")
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert cluster.dataset("counts").collect().height == 40


@pytest.mark.parametrize("taken", [True, False])
def test_of_two_clients_that_replace_a_dataset_the_last_one_names_it(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    if taken:
        by_key(cluster).to_storage(tmp_path / "out", name="counts")
    real = Catalog.put

    def slow(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(Catalog, "put", real)
        with sq.local(cores=2, warehouse=tmp_path / "warehouse") as other:
            last = by_key(other).query(lambda g: g.where(sq.col("k") < 3))
            last.to_storage(tmp_path / "out", name="counts", mode="overwrite")
        real(*given, **named)

    monkeypatch.setattr(Catalog, "put", slow)
    by_key(cluster).to_storage(tmp_path / "out", name="counts", mode="overwrite")
    answer = cluster.dataset("counts").collect(sort=True)
    assert answer["k"].unique().sort().to_list() == [0, 1, 2]
    assert answer.equals(cluster.scan(tmp_path / "out").collect(sort=True))


def test_a_dataset_that_is_being_replaced_is_found_once_it_is_named(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_key(cluster).to_storage(tmp_path / "out", name="counts")
    real, found = Catalog.put, []

    def slow(*given: Any, **named: Any) -> None:
        with sq.local(cores=2, warehouse=tmp_path / "warehouse") as other, ThreadPoolExecutor() as pool:
            reading = pool.submit(lambda: other.dataset("counts").collect())
            wait([reading], timeout=0.2)
            real(*given, **named)
            found.append(reading.result())

    monkeypatch.setattr(Catalog, "put", slow)
    by_key(cluster).query(lambda g: g.where(sq.col("k") < 3)).to_storage(
        tmp_path / "out", name="counts", mode="overwrite"
    )
    assert [frame["k"].unique().sort().to_list() for frame in found] == [[0, 1, 2]]


def test_memory_dataset_is_where_its_shards_are(cluster: sq.Cluster) -> None:
    plan = by_key(cluster)
    dataset = plan.to_memory("counts")
    assert (dataset.place, dataset.rows, dataset.time_range) == ("memory", 40, ("0", "40"))
    again = cluster.dataset("counts")
    assert (again.schema, again.time, again.keys, again.layout) == (plan.schema, plan.time, plan.keys, plan.layout)
    assert again.collect(sort=True).equals(plan.collect(sort=True))
    assert "channel" not in again.redistribute().explain()
    counted = again.redistribute().query(lambda g: g.with_duration(9).count())
    expected = sq.from_frame(FRAME, start="t").group_apply("k", lambda g: g.with_duration(9).count())
    assert counted.collect(sort=True).equals(expected.collect(sort=True))
    assert cluster.dataset("counts", shards=5).collect().height == 40


def test_memory_is_shared_by_the_clusters_of_a_process(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_memory("counts")
    with sq.local(cores=1, warehouse=tmp_path / "warehouse") as other:
        assert other.dataset("counts").collect().height == 40
    assert cluster.dataset("counts").collect().height == 40
    assert [action for action, _, _ in actions(cluster)] == ["to_memory"]


def test_memory_dataset_is_computed_again_in_another_process(cluster: sq.Cluster, tmp_path: Path) -> None:
    by_key(cluster).to_memory("counts")
    program = f"""
import squill as sq
with sq.local(cores=1, warehouse={str(tmp_path / "warehouse")!r}) as cluster:
    print(cluster.dataset("counts").collect().height)
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "40\n"
    # It is still this cluster's.
    assert cluster.dataset("counts").collect().height == 40
    assert [action for action, _, _ in actions(cluster)] == ["to_memory", "recompute"]


def test_memory_of_a_dead_process_is_taken_over(cluster: sq.Cluster, tmp_path: Path) -> None:
    program = f"""
import os
import squill as sq
cluster = sq.local(cores=1, warehouse={str(tmp_path / "warehouse")!r})
cluster.from_frame({{"t": [1, 2]}}, start="t").to_memory("orphan")
os._exit(0)
"""
    subprocess.check_call([sys.executable, "-c", program])
    assert cluster.dataset("orphan").collect().rows() == [(1, 2), (2, 3)]
    cluster.close()
    with sq.local(cores=1, warehouse=tmp_path / "warehouse") as other:
        assert other.datasets() == []


def test_rows_that_came_meanwhile_are_freed_when_they_are_replaced(cluster: sq.Cluster) -> None:
    held = len(memory._held)
    small = cluster.from_frame({"t": [1, 2], "x": [3, 4]}, start="t")

    def meanwhile(frame: pl.DataFrame) -> pl.DataFrame:
        small.to_memory("rows", mode="overwrite")
        return frame.head(1)

    slow = cluster.from_frame({"t": [1], "x": [5]}, start="t", shards=1)
    slow = slow.query(lambda s: s.map_batches(meanwhile, schema={"x": pl.Int64}))
    slow.to_memory("rows", mode="overwrite")
    assert cluster.dataset("rows").collect()["x"].to_list() == [5]
    assert len(memory._held) == held + 1


def test_memory_is_freed_by_remove_overwrite_and_close(tmp_path: Path) -> None:
    held = len(memory._held)
    with sq.local(cores=1, warehouse=tmp_path / "warehouse") as cluster:
        small = cluster.from_frame({"t": [1]}, start="t")
        small.to_memory("a")
        small.to_memory("b")
        with pytest.raises(PlanError, match="there is a dataset 'b' already"):
            small.to_memory("b")
        with pytest.raises(PlanError, match="to_memory: mode is 'append'"):
            small.to_memory("b", mode="append")
        small.to_memory("b", mode="overwrite")
        assert len(memory._held) == held + 2
        cluster.remove("a")
        assert len(memory._held) == held + 1
    assert len(memory._held) == held
    with sq.local(cores=1, warehouse=tmp_path / "warehouse") as other:
        assert other.datasets() == []


def test_rows_without_start_come_first_from_every_block(cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    always = cluster.from_frame({"x": [1]}, shards=2)
    times = cluster.from_frame({"t": [-10, -9, -8], "x": [2, 3, 4]}, start="t", shards=2)
    always.union(times).to_memory("both")
    monkeypatch.setattr(splits, "BLOCK_ROWS", 1)
    found = cluster.dataset("both", shards=1).collect()
    assert found.rows() == [(None, None, 1), (-10, -9, 2), (-9, -8, 3), (-8, -7, 4)]


def test_lineage_of_memory_datasets_holds_no_rows(cluster: sq.Cluster) -> None:
    large = {"t": list(range(200_000))}
    cluster.from_frame(large, start="t").to_memory("large")
    cluster.dataset("large").query(lambda s: s.where(sq.start() < 3)).to_memory("small")
    plan = cluster.catalog.lineage("small").plan
    assert plan is not None
    assert len(plan) < 20_000
    memory.forget_held(cluster.catalog.require("small", "test").dataset.version)
    assert cluster.dataset("small").collect().height == 3


def test_python_objects_are_refused_before_the_run(cluster: sq.Cluster, tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": [1], "x": pl.Series([object()], dtype=pl.Object)})
    plan = cluster.from_frame(frame, start="t")
    with pytest.raises(PlanError, match="to_storage: the column 'x' holds Python objects"):
        plan.to_storage(tmp_path / "out")
    with pytest.raises(PlanError, match="to_memory: the column 'x' is Object"):
        plan.to_memory("x")


def test_owner_lives_as_long_as_its_process() -> None:
    assert is_alive(new_owner())
    host = new_owner().split(":")[0]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not is_alive(f"{host}:{ended.pid}:abc")
    assert is_alive("another-host:1:abc")


def test_folders_of_dead_clusters_are_freed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host, _, rest = new_owner().split(":")
    dead = MemoryFolder(tmp_path, f"{host}:{ended.pid}:{rest}")
    dead.path.mkdir()
    mine = MemoryFolder(tmp_path, new_owner())
    assert mine.place_of("v") == mine.path / "v"
    assert list(tmp_path.iterdir()) == [mine.path]
    mine.free()
    assert list(tmp_path.iterdir()) == []
