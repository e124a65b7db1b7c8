"""Runs whose driver dies go on in another one: the same answer, and what was done is not done again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.catalog import Catalog
from squill.errors import ClusterError, PlanError
from squill.plan.dataset import Dataset
from squill.runtime import run_folder
from squill.runtime.datasets import Datasets
from squill.runtime.run_folder import RunFolder, left_runs
from squill.runtime.runs import Runs
from squill.runtime.staging import Staging
from tests.spark.resumable import ACTIONS, kill_at, marks, plan_in, rows_of
from tests.spark.shared import session_of

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("resumable.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster(spark_cluster: sq.Cluster, tmp_path: Path) -> Iterator[sq.Cluster]:
    """A cluster on the shared session, with a folder and a catalog of the test's own."""
    session = session_of(spark_cluster)
    with sq.spark(session, machines=2, folder=tmp_path / "runs", warehouse=tmp_path / "warehouse") as started:
        yield started


class Death(BaseException):
    """Stands for the death of a driver in tests that do not kill a process."""


@contextmanager
def death_at(moment: str) -> Iterator[None]:
    """Let what runs in context end at the moment, and do nothing of what a living driver does afterwards."""

    def die() -> None:
        raise Death

    def let_go(folder: RunFolder, *_: object) -> None:
        folder._is_gone = True
        folder._lock.release()

    touched = [(RunFolder, "keep"), (RunFolder, "commit"), (Staging, "commit"), (Catalog, "put"), (Catalog, "end_run")]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in touched:
            patch.setattr(owner, name, getattr(owner, name))  # to be put back at the end
        kill_at(moment, die)
        patch.setattr(Staging, "__exit__", lambda *_: None)
        patch.setattr(RunFolder, "__exit__", let_go)
        patch.setattr(Datasets, "_free", lambda *_: None)
        if moment != "end recorded":
            patch.setattr(Runs, "_end", lambda *_, **__: None)
        with pytest.raises(Death):
            yield


def expected(folder: Path) -> pl.DataFrame:
    with sq.local(cores=2) as local:
        answer = plan_in(folder, local).collect(sort=True)
    shutil.rmtree(folder / "seen")
    return answer


def answer_of(result: Any, cluster: sq.Cluster, folder: Path) -> pl.DataFrame:
    """The rows that an action has given, wherever they are."""
    if isinstance(result, (Dataset, int)):
        return cluster.scan(folder / "out").collect(sort=True)
    frame: pl.DataFrame = result if isinstance(result, pl.DataFrame) else result.frame
    return frame.sort(frame.columns)


def left_in(folder: Path) -> tuple[str, int]:
    """The id of the run that was left, and how many of its stages are done."""
    ((run_id, path),) = left_runs(folder / "runs").items()
    return run_id, len(list(path.glob("done-*")))


def check_resumed(cluster: sq.Cluster, folder: Path, wanted: pl.DataFrame, **arguments: Any) -> None:
    """Resume what was left; stages that were done are not run again, others are, and nothing stays behind."""
    run_id, done = left_in(folder)
    before = [marks(folder, stage) for stage in (1, 2)]
    result = sq.resume(run_id, **(arguments or {"on": cluster}))
    after = [marks(folder, stage) for stage in (1, 2)]
    assert answer_of(result, cluster, folder).equals(wanted)
    is_stored = isinstance(result, (Dataset, int)) and before == after
    assert [now > then for now, then in zip(after, before, strict=True)] == [
        done < stage and not is_stored for stage in (1, 2)
    ]
    assert list((folder / "runs").iterdir()) == []
    record = cluster.catalog.find_run(run_id)
    assert record is not None
    assert (record.state, record.rows) == ("done", wanted.height)


@pytest.mark.parametrize(
    ("action", "moment", "done"),
    [
        ("collect", "stage 1 not yet committed", 0),
        ("run", "stage 2 committed", 2),
        ("to_storage", "stage 1 committed", 1),
        pytest.param("collect", "ordered", 0, marks=pytest.mark.faults),
        pytest.param("collect", "stage 1 committed", 1, marks=pytest.mark.faults),
        pytest.param("collect", "answer committed", 3, marks=pytest.mark.faults),
        pytest.param("collect", "end recorded", 3, marks=pytest.mark.faults),
        pytest.param("to_storage", "files in place", 2, marks=pytest.mark.faults),
        pytest.param("to_storage", "entered in the catalog", 2, marks=pytest.mark.faults),
        pytest.param("to_ipc", "stage 2 committed", 2, marks=pytest.mark.faults),
    ],
)
def test_another_driver_goes_on_where_the_first_one_died(
    cluster: sq.Cluster, tmp_path: Path, action: str, moment: str, done: int
) -> None:
    wanted = expected(tmp_path)
    with death_at(moment):
        ACTIONS[action](plan_in(tmp_path, cluster), tmp_path)
    assert left_in(tmp_path)[1] == done
    check_resumed(cluster, tmp_path, wanted)
    if action == "to_storage":
        assert cluster.dataset("kept").collect(sort=True).equals(wanted)
        assert [path.name for path in tmp_path.glob(".*")] == []


def test_driver_that_was_killed_is_followed_by_another(cluster: sq.Cluster, tmp_path: Path) -> None:
    wanted = expected(tmp_path)
    killed(tmp_path, "collect", "stage 1 committed")
    run_id, done = left_in(tmp_path)
    assert done == 1
    (record,) = cluster.runs()
    assert (record.id, record.state, record.action) == (run_id, "died", "collect")
    check_resumed(cluster, tmp_path, wanted)


def killed(folder: Path, action: str, moment: str) -> None:
    """Begin a run in a process that is killed at the moment."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ended = subprocess.run([sys.executable, PROGRAM, folder, action, moment], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.faults
@pytest.mark.parametrize(
    ("action", "moment"),
    [("collect", "ordered"), ("to_storage", "stage 2 committed"), ("to_storage", "files in place")],
)
def test_killed_at_other_moments_too(cluster: sq.Cluster, tmp_path: Path, action: str, moment: str) -> None:
    wanted = expected(tmp_path)
    killed(tmp_path, action, moment)
    check_resumed(cluster, tmp_path, wanted)


@pytest.mark.faults
def test_killed_while_its_tasks_are_at_work(cluster: sq.Cluster, tmp_path: Path) -> None:
    """Whatever the moment is, what is left is either done or done again."""
    wanted = expected(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    driver = subprocess.Popen([sys.executable, PROGRAM, tmp_path, "collect", "answer committed"], env=environment)
    while not marks(tmp_path, 2):
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    check_resumed(cluster, tmp_path, wanted)


@pytest.mark.faults
def test_id_is_enough_for_a_driver_of_its_own(cluster: sq.Cluster, tmp_path: Path) -> None:
    wanted = expected(tmp_path)
    killed(tmp_path, "to_storage", "stage 1 committed")
    run_id, _ = left_in(tmp_path)
    before = marks(tmp_path, 1)
    program = f"import squill as sq; print(sq.resume({run_id!r}, folder={str(tmp_path / 'runs')!r}))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    said = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True, cwd=tmp_path)
    assert said == f"kept: {wanted.height} rows on 2 shards in storage, keyed by k\n"
    assert cluster.dataset("kept").collect(sort=True).equals(wanted)
    assert marks(tmp_path, 1) == before
    assert list((tmp_path / "runs").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.parquet", "runs", "seen", "warehouse"]


def test_files_that_are_lost_are_made_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    wanted = expected(tmp_path)
    with death_at("stage 1 committed"):
        plan_in(tmp_path, cluster).collect(sort=True)
    run_id, _ = left_in(tmp_path)
    lost, cut = sorted((tmp_path / "runs").glob("*/files-0/t1-*.arrow"))
    lost.unlink()
    os.truncate(cut, 100)
    before = marks(tmp_path, 1)
    resumed = sq.resume(run_id, on=cluster)
    assert isinstance(resumed, pl.DataFrame)
    assert resumed.equals(wanted)
    assert marks(tmp_path, 1) > before


def test_attempt_that_outlives_its_driver_gets_into_nobodys_way(cluster: sq.Cluster, tmp_path: Path) -> None:
    wanted = expected(tmp_path)
    with death_at("stage 1 committed"):
        plan_in(tmp_path, cluster).collect(sort=True)
    (files,) = (tmp_path / "runs").glob("*/files-0")
    for attempt in range(40):
        (files / f"t2-f2-s0-a{attempt}.arrow").write_bytes(b"of another driver")
        (files / f"t2-f2-s1-a{attempt}.arrow.part").write_bytes(b"half of it")
    check_resumed(cluster, tmp_path, wanted)


def test_run_that_dies_again_goes_on_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    wanted = expected(tmp_path)
    with death_at("stage 1 committed"):
        plan_in(tmp_path, cluster).collect(sort=True)
    run_id, _ = left_in(tmp_path)
    with death_at("stage 2 committed"):
        sq.resume(run_id, on=cluster)
    assert left_in(tmp_path) == (run_id, 2)
    check_resumed(cluster, tmp_path, wanted)


def test_spark_table_that_was_read_is_not_needed_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    table = session_of(cluster).createDataFrame([(1, 5), (2, 6), (3, 5)], "t long, k long")
    plan = cluster.from_spark(table, start="t").rekey("k").redistribute().query(lambda g: g.with_duration(9).count())
    wanted = plan.collect(sort=True)
    with death_at("stage 1 committed"):
        plan.to_storage(tmp_path / "out")
    resumed = sq.resume(left_in(tmp_path)[0], on=cluster)
    assert isinstance(resumed, Dataset)
    assert cluster.scan(tmp_path / "out").collect(sort=True).equals(wanted)


def test_memory_needs_a_cluster_that_lives(cluster: sq.Cluster, tmp_path: Path) -> None:
    with death_at("stage 1 committed"):
        plan_in(tmp_path, cluster).to_memory("held")
    run_id, _ = left_in(tmp_path)
    with pytest.raises(PlanError) as caught:
        sq.resume(run_id, folder=tmp_path / "runs")
    assert str(caught.value) == (
        f"resume: run {run_id} keeps its answer in the memory of a cluster\nHint: say which: sq.resume(…, on=cluster)."
    )
    sq.resume(run_id, on=cluster)
    assert cluster.dataset("held").collect(sort=True).equals(expected(tmp_path))


def test_run_that_cannot_begin_again_stays(cluster: sq.Cluster, tmp_path: Path) -> None:
    with death_at("stage 1 committed"):
        plan_in(tmp_path, cluster).to_storage(tmp_path / "out", name="kept")
    cluster.from_frame({"x": [1]}).to_storage(tmp_path / "other", name="kept")
    run_id, _ = left_in(tmp_path)
    with pytest.raises(PlanError, match="there is a dataset 'kept' already"):
        sq.resume(run_id, on=cluster)
    assert left_in(tmp_path) == (run_id, 1)
    cluster.remove("kept")
    assert str(sq.resume(run_id, on=cluster)).startswith("kept: ")
    assert list((tmp_path / "runs").iterdir()) == []


def test_living_driver_keeps_its_run(cluster: sq.Cluster, tmp_path: Path) -> None:
    said: list[str] = []

    def resume() -> None:
        (record,) = cluster.runs()
        assert record.state == "running"
        with pytest.raises(ClusterError) as caught:
            sq.resume(record.id, on=cluster)
        said.append(str(caught.value).replace(record.id, "R"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "keep", RunFolder.keep)
        kill_at("ordered", resume)
        assert plan_in(tmp_path, cluster).collect().height
    where = f"process {os.getpid()} on {os.uname().nodename}"
    assert said == [f"resume: run R is still running: {where}\nHint: wait for it, or stop it first."]


def test_runs_that_cannot_be_resumed_say_why_and_stay(cluster: sq.Cluster, tmp_path: Path) -> None:
    with death_at("stage 1 committed"):
        plan_in(tmp_path, cluster).collect(sort=True)
    run_id, _ = left_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        from squill.runtime import resume

        patch.setattr(resume, "versions", lambda: {"squill": "9.9"})
        with pytest.raises(
            ClusterError, match=rf"^resume: run {run_id} was begun with squill .*, and this is squill 9\.9"
        ):
            sq.resume(run_id, on=cluster)
    path = rows_of(tmp_path)
    pl.read_parquet(path).head(10).write_parquet(path)
    with pytest.raises(ClusterError, match=rf"^resume: '{path}' has changed since run {run_id} began"):
        sq.resume(run_id, on=cluster)
    assert left_in(tmp_path) == (run_id, 1)
    order = next((tmp_path / "runs").glob("*/order"))
    order.write_bytes(b"")
    with pytest.raises(ClusterError, match=rf"^resume: the plan of run {run_id} cannot be read: EOFError"):
        sq.resume(run_id, on=cluster)
    order.unlink()
    with pytest.raises(ClusterError, match=rf"^resume: the driver of run {run_id} died before its first stage began"):
        sq.resume(run_id, on=cluster)
    assert list((tmp_path / "runs").iterdir()) == []


def test_old_runs_are_removed_by_the_next_cluster(cluster: sq.Cluster, tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with death_at("stage 1 committed"):
            plan_in(tmp_path, cluster).collect(sort=True)
        ids.append(next(run_id for run_id in left_runs(tmp_path / "runs") if run_id not in ids))
    old = time.time() - (run_folder.KEPT_DAYS * 86_400 + 60)
    os.utime(left_runs(tmp_path / "runs")[ids[0]], (old, old))
    with sq.spark(session_of(cluster), machines=2, folder=tmp_path / "runs") as another:
        another.from_frame({"x": [1]}).collect()
    assert list(left_runs(tmp_path / "runs")) == [ids[1]]
