"""Checkpoints of live queries: what is refused, and what happens where the disk fails. All errors are by text."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.engine.state import journal
from squill.errors import CheckpointError, PlanError, SourceReadError, SquillError
from squill.runtime.live import host
from squill.sharded import ShardedStream

ROWS = pl.DataFrame({"t": [1, 12, 25], "k": [1, 2, 1]})


@pytest.fixture
def cluster() -> Iterator[sq.Cluster]:
    with sq.local(cores=2) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    ROWS.write_parquet(made / "a.parquet")
    return made


def counted(stream: ShardedStream, size: int = 10) -> ShardedStream:
    return stream.rekey("k").redistribute().query(lambda s: s.tumbling_window(size).count())


def run(query: ShardedStream, root: Path, *, complete: bool = False, **options: Any) -> pl.DataFrame:
    started = query.start(str(root / "out"), checkpoint=root / "ck", until_now=True, complete=complete, **options)
    started.wait()
    return started.stable().frame


EXPECTED = [(10, 20, 1, 1), (20, 30, 2, 1), (30, 40, 1, 1)]


@pytest.fixture
def half_way(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> Path:
    """A query that was stopped with windows open; `tmp_path` has its checkpoint."""
    run(counted(cluster.stream(folder, start="t")), tmp_path)
    return tmp_path


def refused(text: str) -> Any:
    return pytest.raises(CheckpointError, match=text)


def files(root: Path) -> dict[str, bytes]:
    return {str(item): item.read_bytes() for item in (root / "ck").rglob("*") if item.is_file()}


def test_another_plan_is_refused_and_the_checkpoint_left_alone(cluster: sq.Cluster, half_way: Path) -> None:
    before = files(half_way)
    stream = cluster.stream(half_way / "in", start="t")
    with refused(r"is of another query:\n  there: .*10.*\n  here:  .*11"):
        run(counted(stream, 11), half_way)
    with refused(r'is of a query with emit="closed", this one has emit="changes"'):
        run(counted(stream), half_way, emit="changes")
    assert files(half_way) == before
    assert sorted(run(counted(stream), half_way, complete=True).rows()) == EXPECTED


def test_a_machine_more_is_refused_where_machines_mean_something(tmp_path: Path) -> None:
    def spread(clicks: sq.ShardedStream) -> sq.ShardedStream:
        placed = clicks.rekey("k").redistribute(scope="local").query(lambda s: s.tumbling_window(10).count())
        return placed.redistribute().query(lambda s: s.sum("count"))

    folder = tmp_path / "in"
    folder.mkdir()
    pl.DataFrame({"t": [1, 2], "k": [1, 2]}).write_parquet(folder / "a.parquet")
    with sq.local(cores=2, machines=2) as cluster:
        spread(cluster.stream(folder, start="t")).start(
            print, checkpoint=tmp_path / "ck", until_now=True, complete=False
        ).wait()
    with sq.local(cores=2, machines=3) as cluster, refused(r"is of shards \[4, 4, 4\], this query has \[6, 6, 6\]"):
        spread(cluster.stream(folder, start="t")).start(print, checkpoint=tmp_path / "ck", until_now=True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 0}, "has format 0, this version of Squill reads 1\n.*go on with the version that wrote it"),
        ({"plan": {"state": -1}}, "holds state version -1, this version of Squill has"),
        ({"plan": {"hash": -1}}, "holds hash version -1, this version of Squill has"),
        ({"plan": 5}, "QUERY' is damaged: TypeError"),
    ],
)
def test_another_version_is_refused(change: Any, text: str, cluster: sq.Cluster, half_way: Path) -> None:
    path = half_way / "ck" / "QUERY"
    stored = json.loads(path.read_text())
    plan = change.pop("plan", {})
    stored["plan"] = {**stored["plan"], **plan} if isinstance(plan, dict) else plan
    path.write_text(json.dumps({**stored, **change}))
    with refused(text):
        run(counted(cluster.stream(half_way / "in", start="t")), half_way)


def test_a_folder_of_other_files_is_refused(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "thesis.txt").write_text("do not touch")
    with refused("holds other files, such as thesis.txt\n.*give a folder of its own"):
        run(counted(cluster.stream(folder, start="t")), tmp_path)
    assert [item.name for item in (tmp_path / "ck").iterdir()] == ["thesis.txt"]


def test_a_checkpoint_in_use_is_refused(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    query = counted(cluster.stream(folder, start="t"))
    with query.start(str(tmp_path / "out"), checkpoint=tmp_path / "ck"):
        with refused("another query runs with the checkpoint .*ck'\n.*stop it first"):
            run(query, tmp_path)
        code = (
            "import sys; from pathlib import Path; from squill.runtime.driver_lock import DriverLock; "
            f"sys.exit(0 if DriverLock.take(Path({str(tmp_path / 'ck' / 'LOCK')!r})) is None else 1)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert sorted(run(query, tmp_path, complete=True).rows()) == EXPECTED


# -- damage -----------------------------------------------------------------------------------------------------


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "a bit is wrong": _flip,
    "the end is missing": lambda content: content[:-3],
    "it is gone": lambda content: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_states_are_an_error_and_never_another_answer(
    damage: str, cluster: sq.Cluster, half_way: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copy")
    query = counted(cluster.stream(half_way / "in", start="t"))
    shutil.copytree(half_way, copy, dirs_exist_ok=True)
    states = [path.relative_to(copy) for path in sorted((copy / "ck" / "state").rglob("*")) if path.is_file()]
    refusals = 0
    for path in states:
        content = (copy / path).read_bytes()
        if not content:
            continue
        for name in ("ck", "out"):
            shutil.rmtree(half_way / name)
            shutil.copytree(copy / name, half_way / name)
        damaged = DAMAGES[damage](content)
        if damaged is None:
            (half_way / path).unlink()
        else:
            (half_way / path).write_bytes(damaged)
        try:
            answer = run(query, half_way, complete=True)
        except CheckpointError as error:
            refusals += bool(re.match(r"fragment \d.*, shard \d of 2: ", str(error)))
        else:  # a file of an older version
            assert sorted(answer.rows()) == EXPECTED
    assert refusals >= 4  # two fragments on two shards


@pytest.mark.parametrize("folder_name", ["commits", "epochs"])
@pytest.mark.parametrize("content", ['{"number":', "{}", "[]", ""])
def test_damaged_records_are_refused(folder_name: str, content: str, cluster: sq.Cluster, half_way: Path) -> None:
    path = half_way / "ck" / folder_name / "00000001"
    whole = path.read_text()
    query = counted(cluster.stream(half_way / "in", start="t"))
    path.write_text(content)
    with refused(f"{folder_name}/00000001' is damaged: .*\n.*restore the checkpoint folder from a copy"):
        run(query, half_way)
    path.write_text(whole)
    assert sorted(run(query, half_way, complete=True).rows()) == EXPECTED


# -- a full disk ------------------------------------------------------------------------------------------------


def _full(*_arguments: Any, **_options: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "name"),
    [(journal.Journal, "_write"), (host, "write_answer"), (host, "sync_to_disk")],
)
def test_a_full_disk_in_a_shard_is_named_and_the_query_goes_on_once_there_is_room(
    owner: Any, name: str, cluster: sq.Cluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = counted(cluster.stream(folder, start="t"))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, _full)
        with pytest.raises(SquillError, match=r"shard \d of 2.*No space left on device"):
            run(query, tmp_path, complete=True)
    assert list((tmp_path / "out").glob("*.parquet")) == []
    assert sorted(run(query, tmp_path, complete=True).rows()) == EXPECTED
    assert list((tmp_path / "out").glob(".*")) == []


@pytest.mark.parametrize("which", ["epochs", "commits"])
def test_a_full_disk_for_a_record_is_named(
    which: str, cluster: sq.Cluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from squill.runtime.live import log

    real = log._write
    query = counted(cluster.stream(folder, start="t"))

    def write(path: Path, content: Any) -> None:
        if path.parent.name == which:
            _full()
        real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(log, "_write", write)
        with refused("the checkpoint .* cannot be used: No space left on device"):
            run(query, tmp_path, complete=True)
    assert sorted(run(query, tmp_path, complete=True).rows()) == EXPECTED


# -- arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"emit": "all"}, r'^start: emit is \'all\'\nHint: use "closed" or "changes"'),
        ({"until_now": 1}, "^start: until_now is 1\nHint: use True or False"),
        ({"complete": None}, "^start: complete is None\nHint: use True or False"),
        ({"checkpoint": 5}, "^start: checkpoint is 5\nHint: give the path of a folder"),
        ({"every": "soon"}, "^start: every is 'soon'"),
        ({"every": -1}, "^start: every"),
        ({"sink": 5}, "^start: 5 is no sink\nHint: give a function of a frame"),
        (
            {"sink": sq.table("db.t")},
            "^start: the table 'db.t' is of Spark's catalog; this cluster has no",
        ),
    ],
)
def test_wrong_arguments_of_start(options: Any, text: str, cluster: sq.Cluster, folder: Path) -> None:
    sink = options.pop("sink", print)
    with pytest.raises(SquillError, match=text):
        cluster.stream(folder, start="t").start(sink, **options)


def test_a_sink_that_cannot_be_a_folder(cluster: sq.Cluster, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match=r"file' cannot be a folder of answers: .*\n.*name another one"):
        cluster.stream(folder, start="t").start(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start": None}, r"^stream: start= is not given: live rows have times"),
        ({"files_per_epoch": 0}, "^stream: files_per_epoch is 0\nHint: give a whole number of at least 1"),
        ({"keep_late": -1}, "^stream: keep_late"),
        ({"idle_after": "soon"}, "^stream: idle_after is 'soon'"),
        ({"schema": 5}, "^stream: schema is 5\nHint: map names to types"),
        ({"disorder": 5}, "^stream: disorder"),
        ({"shards": 0}, "^stream: 0 is not a number of shards"),
        ({"start": "nope"}, "^stream: .*nope"),
    ],
)
def test_wrong_arguments_of_stream(options: Any, text: str, cluster: sq.Cluster, folder: Path) -> None:
    with pytest.raises(SquillError, match=text):
        cluster.stream(folder, **{"start": "t", **options})


def test_sources_that_are_none(cluster: sq.Cluster, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceReadError, match=r"^stream: there is no folder '.*nowhere'\nHint: make it before"):
        cluster.stream(tmp_path / "nowhere", start="t")
    with pytest.raises(SourceReadError, match=r"holds no file yet, so its columns are not known\n.*say what will come"):
        cluster.stream(tmp_path / "empty", start="t")
    with pytest.raises(PlanError, match=r"^stream: frame_source is not a source that keeps growing"):
        cluster.stream(sq.from_frame({"t": [1]}, start="t"))
    with pytest.raises(PlanError, match=r"^stream: no partition has rows yet, so the columns are not known"):
        cluster.stream(sq.partitions(1, lambda p, offset: []), start="t")
    with pytest.raises(PlanError, match=r"^start: no source of this plan is live\nHint: use collect\(\)"):
        cluster.from_frame(ROWS, start="t").start(print)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sq.partitions(0, lambda p, offset: []), "^partitions: n is 0"),
        (lambda: sq.partitions(1, 5), "^partitions: 5 cannot be called"),  # type: ignore[arg-type]
        (lambda: sq.partitions(1, lambda p, offset: [], rows_per_epoch=0), "^partitions: rows_per_epoch is 0"),
        (lambda: sq.folder("x", format="csv"), "^folder: format is 'csv'\nHint: use one of parquet, ipc"),
        (lambda: sq.table(""), "^table: '' is no name"),
    ],
)
def test_wrong_arguments_of_sources_and_sinks(make: Callable[[], object], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        make()
