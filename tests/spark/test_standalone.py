"""A real cluster of two executor processes; in the middle of a query one of them is killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from squill.testing import assert_same_events
from tests.spark.standalone import executor_pids, standalone_cluster
from tests.unit.runtime.cases import CASES

pytestmark = pytest.mark.spark

# A process of its own: one process has one Spark session, and the other tests share theirs.
DRIVER = """
import pickle, sys
import polars as pl
import squill as sq
from pathlib import Path
from tests.unit.runtime.cases import CASES
master, folder, each = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
shared = folder / "shared"
shared.mkdir()
case = CASES["text keys with nulls, milliseconds"]

def mixed(cluster):
    spread = cluster.from_frame(case.frame, start="t", shards=4).rekey("x").redistribute(4, channel="files")
    placed = spread.query(lambda s: s.where(sq.col("x") > -99)).rekey(*case.keys).redistribute(4, channel="shuffle")
    return placed.query(case.query)

def live(cluster, place):
    (place / "in").mkdir(parents=True)
    for number, part in enumerate(case.frame.sort("t").iter_slices(-(-case.frame.height // 6))):
        part.write_ipc(place / "in" / f"{number}.arrow")
    epochs = {}
    rows = cluster.stream(place / "in", start="t", files_per_epoch=1).rekey(*case.keys).redistribute()
    running = rows.query(case.query).start(
        lambda frame, epoch: epochs.update({epoch: frame}), checkpoint=place / "ck", until_now=True
    )
    running.wait()
    return pl.concat(epochs.values())

def kept(cluster):
    if not cluster.datasets():
        case.sharded(cluster, splits=4, to=4).to_memory("kept")
    return cluster.dataset("kept").collect()

with sq.spark(master=master, machines=4, folder=shared, warehouse=folder / "warehouse") as by_files:
    print(by_files.check(), flush=True)
    by_shuffle = sq.spark(by_files.runtime.session, machines=4)
    ways = [
        lambda _: case.sharded(by_files, splits=4, to=4).collect(),
        lambda _: case.sharded(by_shuffle, splits=4, to=4).collect(),
        lambda _: mixed(by_files).collect(),
        lambda run: live(by_files, folder / f"live-{run}"),
        lambda _: kept(by_files),
    ]
    for run in range(len(ways) * each):
        print("run", run, flush=True)
        answer = ways[run // each](run)
        (folder / f"answer-{run}.pickle").write_bytes(pickle.dumps(answer))
assert list(shared.iterdir()) == [], "files were left behind"
"""
WAYS = 5
"""Over files, through the shuffle, by one movement of each, live, in six epochs, and from Spark's cache."""
CASE = CASES["text keys with nulls, milliseconds"]


def start_driver(address: str, folder: Path, each: int) -> subprocess.Popen[str]:
    """Start a process that runs the query `each` times in each of the ways."""
    command = [sys.executable, "-c", DRIVER, address, str(folder), str(each)]
    paths = filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")])
    with (folder / "driver.log").open("w") as log:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, text=True)


def wait_until_running(folder: Path, driver: subprocess.Popen[str], run: int, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while f"run {run}\n" not in (folder / "driver.log").read_text():
        assert driver.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, (folder / "driver.log").read_text()
        time.sleep(0.02)


def kill_some_executor(folder: Path, driver: subprocess.Popen[str], seconds: float = 60) -> None:
    """Kill an executor; those that were killed may not have been replaced yet, and the last run may be over."""
    deadline = time.monotonic() + seconds
    while not (executors := executor_pids(folder)):
        if driver.poll() is not None:
            return
        assert time.monotonic() < deadline, "there was nobody to kill"
        time.sleep(0.02)
    os.kill(executors[0], signal.SIGKILL)


def check_answers(folder: Path, driver: subprocess.Popen[str], runs: int) -> None:
    assert driver.wait(timeout=600) == 0, (folder / "driver.log").read_text()[-4_000:]
    expected = CASE.in_process()
    for run in range(runs):
        answer: pl.DataFrame = pickle.loads((folder / f"answer-{run}.pickle").read_bytes())
        assert_same_events(answer, expected)


def run_and_kill(folder: Path, delays: list[float]) -> None:
    """In each of the ways run the query once undisturbed and once per delay, after which an executor is killed."""
    each = 1 + len(delays)
    with standalone_cluster(folder, workers=2, cores=1) as address:
        driver = start_driver(address, folder, each)
        try:
            for number, delay in [
                (way * each + 1 + place, delay) for way in range(WAYS) for place, delay in enumerate(delays)
            ]:
                wait_until_running(folder, driver, number)
                time.sleep(delay)
                kill_some_executor(folder, driver)
            check_answers(folder, driver, WAYS * each)
        finally:
            driver.kill()
            driver.wait()


def test_executor_killed_in_the_middle_of_a_query(tmp_path: Path) -> None:
    run_and_kill(tmp_path, [0.3])


@pytest.mark.faults
def test_executors_killed_at_many_moments(tmp_path: Path) -> None:
    run_and_kill(tmp_path, [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
