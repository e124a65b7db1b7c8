from __future__ import annotations

import ctypes
import datetime as dt
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import squill as sq
from squill.engine import egress_file
from squill.errors import ClusterError, InputError, PlanError, ShardError, SourceReadError
from squill.plan.dataset import MANIFEST, read_dataset
from squill.testing import assert_same_events
from tests.unit.runtime.cases import CASES, Case


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sq.Cluster]:
    with sq.local(cores=2, warehouse=tmp_path_factory.mktemp("warehouse")) as started:
        yield started


def counts(cluster: sq.Cluster, shards: int = 3) -> sq.ShardedStream:
    return CASES["integer keys, microseconds in a zone"].sharded(cluster, to=shards)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("file_format", ["parquet", "ipc"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_stored_answer_reads_back_as_the_same_stream(
    cluster: sq.Cluster, case: Case, file_format: str, tmp_path: Path
) -> None:
    plan = case.sharded(cluster, to=3)
    dataset = plan.to_storage(tmp_path / "out", format=file_format)
    back = cluster.scan(tmp_path / "out")
    assert (back.schema, back.time, back.keys, back.layout) == (plan.schema, plan.time, plan.keys, plan.layout)
    expected = plan.collect(sort=True)
    assert back.collect(sort=True).equals(expected)
    assert sq.scan(tmp_path / "out").collect(sort=True).equals(expected)
    assert dataset.rows == expected.height


def test_plain_glob_is_the_answer(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = counts(cluster)
    plan.to_storage(tmp_path / "out")
    found = pl.read_parquet(str(tmp_path / "**/*.parquet")).sort(pl.all())
    assert found.equals(plan.collect(sort=True))


def test_manifest_says_what_is_stored(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = counts(cluster)
    plan.to_storage(tmp_path / "out", name="hourly")
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    frame = plan.collect()
    assert manifest["name"] == "hourly"
    assert manifest["rows"] == frame.height == sum(file["rows"] for file in manifest["files"])
    assert manifest["schema"] == {name: str(dtype) for name, dtype in frame.schema.items()}
    assert manifest["key"] == ["k"]
    assert manifest["sharding"] == {"shards": 3, "hash_of": ["k"], "hash_version": 1}
    first, last = (frame["start"].min(), frame["end"].max())
    assert manifest["time_range"] == [f"{moment:%F %T}" for moment in _in_utc(first, last)]
    assert any("hopping_window" in line for line in manifest["lineage"])


def _in_utc(*moments: Any) -> list[Any]:
    return [moment.astimezone(dt.UTC).replace(tzinfo=None) for moment in moments]


def test_every_type_survives(cluster: sq.Cluster, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "t": [1, 2],
            "category": pl.Series(["a", None], dtype=pl.Categorical),
            "choice": pl.Series(["a", None], dtype=pl.Enum(["b", "a"])),
            "moment": pl.Series([1, None], dtype=pl.Datetime("ns", "Asia/Tokyo")),
            "length": pl.Series([1, None], dtype=pl.Duration("ms")),
            "price": pl.Series(["1.25", None]).cast(pl.Decimal(20, 2)),
            "lists": pl.Series([[1], None], dtype=pl.List(pl.Int8)),
            "parts": pl.Series([{"x": 1, "y": "z"}, None]),
            "nothing": pl.Series([None, None], dtype=pl.Null),
            "large": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
        }
    )
    for file_format in ("parquet", "ipc"):
        plan = cluster.from_frame(frame, start="t", shards=2)
        plan.to_storage(tmp_path / file_format, format=file_format)
        back = cluster.scan(tmp_path / file_format).collect(sort=True)
        assert back.schema == plan.collect().schema
        assert back.equals(plan.collect(sort=True))


def test_relational_rows_are_stored_without_times(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = cluster.from_frame({"start": [3, 1], "x": ["a", "b"]}, shards=2)
    plan.to_storage(tmp_path / "out")
    back = cluster.scan(tmp_path / "out")
    assert back.time is None
    assert back.collect(sort=True).rows() == [(1, "b"), (3, "a")]


def test_rows_without_start_and_end_come_back(cluster: sq.Cluster, tmp_path: Path) -> None:
    """A relational row beside temporal ones is alive at every instant: both its times are null."""
    always = cluster.from_frame({"x": [1]}, shards=1)
    plan = always.union(cluster.from_frame({"t": [7, 3], "x": [2, 3]}, start="t", shards=1))
    for file_format in ("parquet", "ipc"):
        plan.to_storage(tmp_path / file_format, format=file_format)
        back = sq.scan(tmp_path / file_format)
        assert back.collect().rows() == plan.collect().rows() == [(None, None, 1), (3, 4, 3), (7, 8, 2)]
        alive = back.aggregate(n=sq.count()).collect()
        assert alive.equals(plan.query(lambda s: s.aggregate(n=sq.count())).collect())


def test_windows_as_rows_are_stored_as_they_are_shown(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = cluster.from_frame({"t": [1, 12]}, start="t", shards=1)
    plan = plan.query(lambda s: s.tumbling_window(10).aggregate(n=sq.count()).per_window())
    plan.to_storage(tmp_path / "out")
    assert cluster.scan(tmp_path / "out").collect(sort=True).equals(plan.collect(sort=True))


def test_what_was_redistributed_is_not_moved_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    case = CASES["integer keys, microseconds in a zone"]
    source = cluster.from_frame(case.frame, start="t").rekey("k").redistribute(5)
    source.to_storage(tmp_path / "by_key")
    again = cluster.scan(tmp_path / "by_key").rekey("k").redistribute().query(case.before).query(case.query)
    assert again.layout.shards == 5
    assert "channel" not in again.explain()
    assert_same_events(again.collect(), case.in_process())


@pytest.mark.parametrize("read", [{"shards": 4}, {"key": "x"}])
def test_other_keys_and_other_shards_move(cluster: sq.Cluster, read: dict[str, Any], tmp_path: Path) -> None:
    frame = {"t": list(range(50)), "k": [t % 7 for t in range(50)], "x": [t % 3 for t in range(50)]}
    cluster.from_frame(frame, start="t").rekey("k").redistribute(5).to_storage(tmp_path / "out")
    key = read.get("key", "k")
    again = cluster.scan(tmp_path / "out", shards=read.get("shards")).rekey(key).redistribute()
    assert "channel 1: redistribute" in again.explain()
    expected = sq.from_frame(frame, start="t").group_apply(key, lambda g: g.with_duration(9).count()).collect()
    assert_same_events(again.query(lambda g: g.with_duration(9).count()).collect(), expected)


def test_stored_key_keeps_the_query_keyed(cluster: sq.Cluster, tmp_path: Path) -> None:
    cluster.from_frame({"t": [1, 1, 2], "k": ["a", "b", "a"]}, start="t").rekey("k").redistribute().to_storage(
        tmp_path / "out"
    )
    found = cluster.scan(tmp_path / "out").query(lambda g: g.sliding_window(5).count()).collect(sort=True)
    assert found.rows() == [(1, 2, "a", 1), (1, 6, "b", 1), (2, 6, "a", 2), (6, 7, "a", 1)]


def test_existing_dataset_is_overwritten_only_when_asked(cluster: sq.Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster.from_frame({"t": [1]}, start="t", shards=1).to_storage(out)
    other = cluster.from_frame({"t": [5, 6]}, start="t", shards=2)
    with pytest.raises(PlanError, match="is a dataset already"):
        other.to_storage(out)
    assert cluster.scan(out).collect().rows() == [(1, 2)]
    other.to_storage(out, mode="overwrite")
    assert cluster.scan(out).collect().rows() == [(5, 6), (6, 7)]
    assert len(list(out.glob("*.parquet"))) == 2
    assert everything_below(tmp_path)[0] == "out"


def test_dataset_may_be_made_from_itself(cluster: sq.Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster.from_frame({"t": [1, 2]}, start="t", shards=2).to_storage(out)
    cluster.scan(out).query(lambda s: s.shift(10)).to_storage(out, mode="overwrite")
    assert cluster.scan(out).collect().rows() == [(11, 12), (12, 13)]


def test_exchange_works_where_the_system_has_none(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    out = tmp_path / "out"
    cluster.from_frame({"t": [1]}, start="t", shards=1).to_storage(out)
    cluster.from_frame({"t": [5]}, start="t", shards=1).to_storage(out, mode="overwrite")
    assert cluster.scan(out).collect().rows() == [(5, 6)]
    assert names_in(tmp_path) == ["out"]


def test_failed_overwrite_leaves_the_old_answer(cluster: sq.Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster.from_frame({"t": [1]}, start="t", shards=1).to_storage(out)
    before = everything_below(tmp_path)
    with pytest.raises(InputError, match="null"):
        cluster.from_frame({"t": [3, None]}, start="t", shards=2).to_storage(out, mode="overwrite")
    assert everything_below(tmp_path) == before
    assert cluster.scan(out).collect().rows() == [(1, 2)]


def test_foreign_folders_and_files_are_refused(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = cluster.from_frame({"t": [1]}, start="t")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("…")
    for mode in ("error", "overwrite"):
        with pytest.raises(PlanError, match="is not empty and is no dataset of Squill"):
            plan.to_storage(tmp_path / "mine", mode=mode)
    with pytest.raises(PlanError, match="is a file"):
        plan.to_storage(tmp_path / "mine" / "thesis.tex")
    with pytest.raises(PlanError, match=r"is below '.*thesis.tex', which is a file"):
        plan.to_storage(tmp_path / "mine" / "thesis.tex" / "out")
    with pytest.raises(PlanError, match="'/' is the root of all folders"):
        plan.to_storage("/")
    with pytest.raises(PlanError, match="mode is 'append'"):
        plan.to_storage(tmp_path / "out", mode="append")
    with pytest.raises(PlanError, match="format is 'csv'"):
        plan.to_storage(tmp_path / "out", format="csv")
    assert everything_below(tmp_path) == ["mine", "mine/thesis.tex"]


def test_a_dataset_holds_no_other_one(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = cluster.from_frame({"t": [1]}, start="t")
    plan.to_storage(tmp_path / "out")
    before = everything_below(tmp_path)
    for below in ("inner", "deep/inner", "_squill/inner"):
        with pytest.raises(PlanError, match=r"is in the folder of a dataset, '.*/out'\nHint: use a folder beside"):
            plan.to_storage(tmp_path / "out" / below)
    assert everything_below(tmp_path) == before


def test_a_dataset_is_found_by_its_address_too(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = counts(cluster)
    out = tmp_path / "an answer, 100%"
    plan.to_storage(out.as_uri())
    back = cluster.scan(out.as_uri())
    assert (back.placement, back.keys, back.time) == (plan.placement, plan.keys, plan.time)
    assert sq.scan(out.as_uri()).collect(sort=True).equals(plan.collect(sort=True))
    with pytest.raises(SourceReadError, match="matches no file"):
        sq.scan((tmp_path / "nowhere").as_uri())


def test_empty_folder_may_be_used_and_parents_are_made(cluster: sq.Cluster, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    plan = cluster.from_frame({"t": [1]}, start="t")
    plan.to_storage(tmp_path / "empty")
    plan.to_storage(tmp_path / "a" / "b")
    assert cluster.scan(tmp_path / "empty").collect().equals(cluster.scan(tmp_path / "a" / "b").collect())


def test_failure_leaves_no_folder_that_was_made_for_it(cluster: sq.Cluster, tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": [None]}, schema={"t": pl.Int64})
    with pytest.raises(InputError):
        cluster.from_frame(frame, start="t").to_storage(tmp_path / "a" / "b")
    assert everything_below(tmp_path) == []


def test_full_disk_is_named_and_leaves_nothing(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(egress_file.FileSink, "_write", no_room)
    with pytest.raises(ShardError, match=r"fragment 1, shard 0 of 1.*No space left on device"):
        cluster.from_frame({"t": [1, 2, 3]}, start="t", shards=1).to_storage(tmp_path / "out")
    assert everything_below(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_file_on_a_really_full_disk_fails_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda path, mode: real("/dev/full", mode))
    with sq.local(cores=1) as cluster, pytest.raises(ShardError, match="No space left on device"):
        cluster.from_frame({"t": list(range(200_000))}, start="t", shards=1).to_storage(tmp_path / "out")
    assert everything_below(tmp_path) == []


def test_missing_file_is_named(cluster: sq.Cluster, tmp_path: Path) -> None:
    dataset = cluster.from_frame({"t": [1, 2]}, start="t", shards=2).to_storage(tmp_path / "out")
    Path(dataset.paths[1]).unlink()
    assert [file.shard for file in read_dataset(tmp_path / "out").lost()] == [1]
    with pytest.raises(SourceReadError, match="part-00001"):
        sq.scan(tmp_path / "out").collect()


def test_damaged_and_newer_manifests_are_refused(cluster: sq.Cluster, tmp_path: Path) -> None:
    cluster.from_frame({"t": [1]}, start="t").to_storage(tmp_path / "out")
    manifest = tmp_path / "out" / MANIFEST
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"squill_dataset": 1', '"squill_dataset": 99'))
    with pytest.raises(SourceReadError, match="a dataset of format 99, and this version of Squill reads format 1"):
        sq.scan(tmp_path / "out")
    manifest.write_text(whole[:100])
    with pytest.raises(SourceReadError, match=r"the manifest of the dataset .* cannot be read"):
        sq.scan(tmp_path / "out")


def test_writer_killed_in_the_middle_leaves_nothing_visible(cluster: sq.Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = textwrap.dedent(
        f"""
        import time
        import polars as pl
        import squill as sq

        def slow(frame):
            if frame["x"][0] > 0:
                print("writing", flush=True)
                time.sleep(60)
            return frame

        with sq.local(cores=2) as cluster:
            source = cluster.from_frame({{"t": [1, 2], "x": [0, 1]}}, start="t", shards=2)
            source.query(lambda s: s.map_batches(slow, schema={{"x": pl.Int64}})).to_storage({str(out)!r})
        """
    )
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    writer.kill()
    writer.wait()
    writer.stdout.close()
    assert not out.exists()
    assert not list(tmp_path.rglob("*.parquet"))
    assert [name for name in names_in(tmp_path) if not name.startswith(".")] == []
    # The next writer tidies up after it.
    cluster.from_frame({"t": [1]}, start="t").to_storage(out)
    assert names_in(tmp_path) == ["out"]


def test_answer_comes_in_batches_as_shards_finish(cluster: sq.Cluster) -> None:
    plan = counts(cluster, shards=4)
    frames = list(plan.batches())
    assert 1 < len(frames) <= 4
    assert pl.concat(frames).sort(pl.all()).equals(plan.collect(sort=True))


def test_first_batch_does_not_wait_for_the_last_shard(cluster: sq.Cluster) -> None:
    go_on = threading.Event()

    def wait(frame: pl.DataFrame) -> pl.DataFrame:
        if frame["x"][0] == 1:
            assert go_on.wait(60)
        return frame

    source = cluster.from_frame({"t": [1, 2], "x": [0, 1]}, start="t", shards=2)
    frames = source.query(lambda s: s.map_batches(wait, schema={"x": pl.Int64})).batches()
    assert next(frames)["x"].to_list() == [0]
    go_on.set()
    assert [frame["x"].to_list() for frame in frames] == [[1]]


def test_left_batches_stop_the_run(cluster: sq.Cluster) -> None:
    before = threading.active_count()
    seen: list[int] = []

    def slowly(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append(frame.height)
        time.sleep(0.001)
        return frame

    frame = {"t": list(range(2_000_000))}
    source = cluster.from_frame(frame, start="t", shards=2, keep_time=True)
    big = source.query(lambda s: s.where(sq.col("t") != 3).map_batches(slowly, schema={"t": pl.Int64}))
    small = cluster.from_frame({"t": [1]}, start="t", shards=2, keep_time=True)
    frames = small.union(big).batches()
    for _ in frames:
        break
    frames.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_errors_come_out_of_the_iterator(cluster: sq.Cluster) -> None:
    with pytest.raises(InputError, match="null"):
        list(cluster.from_frame({"t": [1, None]}, start="t", shards=2).batches())


def test_to_ipc_writes_one_arrow_file_per_shard(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = counts(cluster)
    rows = plan.to_ipc(tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.arrow"))
    assert len(files) == 3
    assert pl.concat([pl.read_ipc(file) for file in files]).height == rows == plan.collect().height


def test_closed_cluster_writes_nothing(tmp_path: Path) -> None:
    with sq.local(cores=1) as cluster:
        plan = cluster.from_frame({"t": [1]}, start="t")
    with pytest.raises(ClusterError, match="closed"):
        plan.to_storage(tmp_path / "out")
    assert everything_below(tmp_path) == []


def test_the_third_argument_is_the_order_of_progress(tmp_path: Path) -> None:
    with sq.local(cores=1, warehouse=tmp_path / "warehouse") as cluster:
        rows = cluster.from_frame({"k": [1, 2, 3]})
        made = rows.to_storage(tmp_path / "out", "out", sq.progress.hashed("k", 2))
    assert made.name == "out"
    assert made.progress is not None
