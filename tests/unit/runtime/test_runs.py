"""Every run has an id and, where there is a catalog, a record."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import squill as sq
from squill.catalog import Catalog
from squill.errors import ClusterError, InputError, PlanError, RunNotFoundError
from squill.runtime.request import Request, without_password
from squill.runtime.resume import check_alone
from squill.runtime.store import Wanted


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[sq.Cluster]:
    with sq.local(cores=2, warehouse=tmp_path / "warehouse") as started:
        yield started


def rows(cluster: sq.Cluster) -> sq.ShardedStream:
    return cluster.from_frame({"t": [1, 2, 3], "k": [1, 2, 1]}, start="t").rekey("k").redistribute()


def test_every_action_is_recorded(cluster: sq.Cluster, tmp_path: Path) -> None:
    plan = rows(cluster)
    plan.collect()
    run = plan.run()
    list(plan.batches())
    plan.to_storage(tmp_path / "out", name="kept")
    plan.to_ipc(tmp_path / "ipc")
    plan.to_memory("held")
    cluster.run(sq.from_frame({"x": [1]}))
    records = cluster.runs()
    assert [(record.action, record.dataset, record.rows) for record in records] == [
        ("collect", None, 3),
        ("run", None, 3),
        ("batches", None, 3),
        ("to_storage", "kept", 3),
        ("to_ipc", str(tmp_path / "ipc"), 3),
        ("to_memory", "held", 3),
        ("collect", None, 1),
    ]
    assert {record.state for record in records} == {"done"}
    assert records[1].id == run.id
    # What explain estimates, after ~, is for people, and costs time.
    assert records[0].plan == re.sub(r",? +~.*", "", plan.explain())
    assert all(record.ended is not None and record.started <= record.ended for record in records)
    assert len({record.id for record in records}) == 7
    assert cluster.catalog.require("kept", "test").dataset.version == records[3].id
    assert str(records[3]).startswith(f"{records[3].id}: to_storage kept, done, 3 rows, started 20")


def test_failed_run_is_recorded_with_its_error(cluster: sq.Cluster) -> None:
    with pytest.raises(InputError) as caught:
        cluster.from_frame({"t": [1, None]}, start="t").collect()
    (record,) = cluster.runs()
    assert (record.state, record.rows, record.error) == ("failed", None, str(caught.value))


def test_loop_that_is_left_is_a_cancelled_run(cluster: sq.Cluster) -> None:
    frames = rows(cluster).batches()
    next(frames)
    frames.close()  # type: ignore[attr-defined]
    (record,) = cluster.runs()
    assert (record.action, record.state) == ("batches", "cancelled")


def test_cluster_that_was_given_no_catalog_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sq.local(cores=2) as cluster:
        assert rows(cluster).run().id
        rows(cluster).to_storage(tmp_path / "out")
        assert cluster.runs() == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with sq.local(cores=2) as cluster:
        rows(cluster).to_storage(tmp_path / "named", name="named")
        # From now on there is one.
        rows(cluster).collect()
        assert [record.action for record in cluster.runs()] == ["to_storage", "collect"]
    with sq.local(cores=2) as cluster:
        rows(cluster).collect()
        assert len(cluster.runs()) == 3


def test_run_without_a_catalog_loads_no_database(tmp_path: Path) -> None:
    program = """
import sys
import squill as sq
with sq.local(cores=1) as cluster:
    cluster.from_frame({"t": [1]}, start="t").collect()
print("sqlalchemy" in sys.modules)
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True, cwd=tmp_path) == "False\n"


def test_run_whose_process_is_no_more_has_died(cluster: sq.Cluster, tmp_path: Path) -> None:
    program = f"""
import os
import squill as sq
cluster = sq.local(cores=1, warehouse={str(tmp_path / "warehouse")!r})
source = cluster.from_frame({{"t": [1]}}, start="t")
source.query(lambda s: s.map_batches(lambda frame: os._exit(9))).collect()
"""
    assert subprocess.call([sys.executable, "-c", program]) == 9
    (record,) = cluster.runs()
    assert (record.action, record.state, record.ended) == ("collect", "died", None)
    with pytest.raises(ClusterError) as caught:
        sq.resume(record.id, warehouse=tmp_path / "warehouse", folder=tmp_path)
    assert str(caught.value) == (
        f"resume: run {record.id} (collect) has left nothing to go on from\n"
        "Hint: run the query again. Runs on Spark that move rows as files can be resumed, for 7 days after they died."
    )


def test_run_that_is_over_cannot_be_resumed(cluster: sq.Cluster, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    done = rows(cluster).run().id
    with pytest.raises(ClusterError, match=rf"^resume: run {done} \(run\) is done: there is nothing left to do"):
        sq.resume(done, warehouse=warehouse, folder=tmp_path)
    with pytest.raises(InputError):
        cluster.from_frame({"t": [1, None]}, start="t").to_storage(tmp_path / "out", name="bad")
    failed = cluster.runs()[-1].id
    with pytest.raises(ClusterError, match=rf"^resume: run {failed} \(to_storage 'bad'\) failed: .* is null") as caught:
        sq.resume(failed, warehouse=warehouse, folder=tmp_path)
    assert str(caught.value).count("Hint: ") == 1
    assert str(caught.value).endswith("before giving the data to Squill.")


def test_run_that_has_made_its_dataset_gives_it_again(cluster: sq.Cluster, tmp_path: Path) -> None:
    named = rows(cluster).to_storage(tmp_path / "named", name="named")
    unnamed = rows(cluster).to_storage(tmp_path / "unnamed")
    rows(cluster).to_ipc(tmp_path / "ipc")
    ids = [record.id for record in cluster.runs()]
    assert [sq.resume(run_id, warehouse=tmp_path / "warehouse") for run_id in ids] == [named, unnamed, 3]
    cluster.remove("named")
    with pytest.raises(ClusterError, match="is done: there is nothing left to do"):
        sq.resume(ids[0], warehouse=tmp_path / "warehouse")


def test_run_that_still_runs_cannot_be_resumed(cluster: sq.Cluster, tmp_path: Path) -> None:
    errors: list[str] = []

    def resume(frame: pl.DataFrame) -> pl.DataFrame:
        (record,) = cluster.runs()
        assert record.state == "running"
        with pytest.raises(ClusterError) as caught:
            sq.resume(record.id, warehouse=tmp_path / "warehouse", folder=tmp_path)
        errors.append(str(caught.value).replace(record.id, "R"))
        return frame

    source = cluster.from_frame({"t": [1]}, start="t", shards=1)
    source.query(lambda s: s.map_batches(resume, schema={})).collect()
    host = os.uname().nodename
    where = f"process {os.getpid()} on {host}"
    assert errors == [
        f"resume: run R (collect) is still running: {where}\nHint: wait for it, or stop it first.",
    ]


def test_unknown_run_lists_those_that_have_not_ended(
    cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where runs that were killed before may be recorded otherwise
    for name in ("0a1b2c3d4e5f", "ffff00001111"):
        (tmp_path / f"squill-run-{name}").mkdir()
    with pytest.raises(RunNotFoundError) as caught:
        sq.resume("0a1b2c3d4e5e", folder=tmp_path, warehouse=tmp_path / "warehouse")
    assert str(caught.value) == (
        "resume: there is no run '0a1b2c3d4e5e'; those that have not ended are: 0a1b2c3d4e5f, ffff00001111\n"
        "Hint: did you mean '0a1b2c3d4e5f'?"
    )
    with pytest.raises(RunNotFoundError) as caught:
        sq.resume("no", folder=tmp_path / "elsewhere")
    assert str(caught.value) == (
        "resume: there is no run 'no'; those that have not ended are: none\n"
        "Hint: say where it was: folder=, warehouse= or catalog= as sq.spark had them; cluster.runs() lists runs."
    )


def test_password_of_a_catalog_is_not_written_down(cluster: sq.Cluster) -> None:
    assert without_password("postgresql://me:secret@host/x") is None
    assert without_password("postgresql://me@host/x") == "postgresql://me@host/x"
    wanted = Wanted(node=rows(cluster).plan, keys=(), path="out", name="kept")
    with pytest.raises(PlanError) as caught:
        check_alone("a1", Request(action="to_storage", wanted=wanted), None)
    assert str(caught.value) == (
        "resume: run a1 makes the dataset 'kept' in a catalog whose URL has a password, which is not written down\n"
        "Hint: give it again: sq.resume(…, catalog=…)."
    )


def test_cluster_of_threads_cannot_go_on(cluster: sq.Cluster) -> None:
    with pytest.raises(PlanError, match=r"^resume: on=Cluster\(local, 2 threads\) is a cluster of threads"):
        sq.resume("x", on=cluster)


def test_answer_is_not_lost_when_its_end_cannot_be_recorded(
    cluster: sq.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ClusterError("the server went away")

    monkeypatch.setattr(Catalog, "end_run", refuse)
    with pytest.warns(RuntimeWarning, match=r"the end of run \w+ is not recorded: the server went away"):
        assert rows(cluster).collect().height == 3
    with pytest.raises(InputError) as caught:
        cluster.from_frame({"t": [1, None]}, start="t").collect()
    assert "is not recorded: the server went away" in caught.value.__notes__[0]


def test_recording_costs_little(cluster: sq.Cluster) -> None:
    plan = cluster.from_frame(pl.DataFrame(schema={"t": pl.Int64}), start="t")
    plan.collect()
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        plan.collect()
        seconds.append(time.process_time() - begin)
    assert statistics.median(seconds) < 0.1
