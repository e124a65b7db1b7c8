"""Sessions: what is checked before anything runs, and what a worker finds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import squill as sq
from squill.errors import ClusterError, PlanError
from squill.polars_memory import KEPT_FOR
from squill.runtime.spark import session as session_module
from squill.runtime.spark.daemon import until_nobody_listens
from tests.spark.shared import run_driver, session_of

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "machines": ({"machines": 0}, "spark: machines is 0"),
    "cores": ({"cores": 0}, "spark: cores is 0"),
    "cores that are no number": ({"cores": 1.5}, "spark: cores is 1.5"),
    "master": ({"master": 5}, "spark: master is 5"),
    "session": ({"session": 5}, "spark: 5 is no Spark session"),
    "cores that are not told": ({"cores": None}, "spark: cores is None"),
    "a million machines": ({"machines": 500_000, "cores": 2}, "spark: 1,000,000 shards"),
    "tls": ({"tls": "yes"}, "spark: tls is 'yes'"),
    "channel": ({"channel": ["files"]}, r"spark: channel is \['files'\]"),
    "warehouse": ({"master": "local[1]", "warehouse": 5}, "warehouse: 5 is no path"),
    "catalog": ({"master": "local[1]", "catalog": 5}, "catalog: 5 is no URL of a database"),
    "compression": ({"compression": "gzip"}, "spark: compression is 'gzip'\nHint: use None or one of lz4, zstd."),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_argument_is_refused_before_spark_starts(arguments: dict[str, Any], message: str) -> None:
    before = SparkSession.getActiveSession()
    with pytest.raises(PlanError, match=message):
        sq.spark(**arguments)
    assert SparkSession.getActiveSession() is before


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sc://127.0.0.1:1/;token=secret", r"nobody answers at sc://127\.0\.0\.1:1: .*refused(.|\n)*15002"),
        ("sc://", "no session could be started on 'sc://': .INVALID_CONNECT_URL."),
        ("sc://host:port", "no session could be started on 'sc://host:port': .*Port"),
        ("sc://here/;secret", "no session could be started on 'sc://here': .INVALID_CONNECT_URL."),
    ],
)
def test_an_address_of_nobody_is_said_at_once(address: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    for name in session_module.PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(session_module, "_check_no_context", lambda: None)
    before = dict(os.environ)
    with pytest.raises(ClusterError, match=message) as caught:
        sq.spark(master=address)
    assert "token" not in str(caught.value)
    assert dict(os.environ) == before


def test_missing_java_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ClusterError, match=r"there is no java in JAVA_HOME(.|\n)*openjdk-17"):
        sq.spark()


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_try_failed_tasks_again(master: str, expected: str) -> None:
    assert session_module._with_attempts(master) == expected


def test_more_cores_than_a_local_master_has_is_refused_before_spark_starts() -> None:
    with pytest.raises(ClusterError, match=r"a task needs 4 cores, but the master has 2\nHint: .*local\[4\]"):
        sq.spark(master="local[2]", cores=4)


@pytest.mark.spark
def test_master_that_spark_does_not_know_is_said_without_java() -> None:
    """In a process of its own: one session is running here."""
    code = "import squill as sq\ntry: sq.spark(master='nonsense')\nexcept sq.errors.ClusterError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("spark: no session could be started on 'nonsense': ")
    assert "Hint: check the master" in said


@pytest.mark.spark
def test_machines_default_to_the_slots_there_are(spark_cluster: sq.Cluster) -> None:
    cluster = sq.spark(session_of(spark_cluster))
    assert repr(cluster) == "Cluster(spark, 2 machines of 1 cores)"


@pytest.mark.spark
def test_java_and_workers_of_one_host_do_not_talk_over_tcp(spark_cluster: sq.Cluster) -> None:
    assert session_of(spark_cluster).conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_worker_that_nobody_listens_to_ends_without_a_word() -> None:
    def serve(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 0

    served = until_nobody_listens(serve)
    assert (served(None), served(BrokenPipeError())) == (0, 1)
    with pytest.raises(ValueError, match="another"):
        served(ValueError("another"))


@pytest.mark.spark
def test_more_cores_than_a_task_has_is_refused(spark_cluster: sq.Cluster) -> None:
    with pytest.raises(ClusterError, match=r"cores is 2(.|\n)*--conf spark.task.cpus=2"):
        sq.spark(session_of(spark_cluster), cores=2)


@pytest.mark.spark
def test_second_session_is_refused(spark_cluster: sq.Cluster) -> None:
    with pytest.raises(ClusterError, match="a Spark session is running already"):
        sq.spark(master="local[1]")


@pytest.mark.spark
def test_second_session_is_refused_on_every_thread(spark_cluster: sq.Cluster) -> None:
    """Which one is active Spark knows of each thread by itself."""
    with ThreadPoolExecutor(1) as thread, pytest.raises(ClusterError, match="a Spark session is running already"):
        thread.submit(sq.spark, master="local[1]").result()


@pytest.mark.spark
def test_session_and_master_together_are_refused(spark_cluster: sq.Cluster) -> None:
    with pytest.raises(PlanError, match="both a session and a master"):
        sq.spark(session_of(spark_cluster), master="local[1]")


@pytest.mark.spark
def test_closing_a_borrowed_session_leaves_it_running(spark_cluster: sq.Cluster) -> None:
    session = session_of(spark_cluster)
    sq.spark(session).close()
    assert session.range(3).count() == 3


@pytest.mark.spark
def test_closed_cluster_refuses_to_run(spark_cluster: sq.Cluster) -> None:
    cluster = sq.spark(session_of(spark_cluster))
    source = cluster.from_frame({"t": [1]}, start="t")
    cluster.close()
    with pytest.raises(ClusterError, match="this cluster is closed"):
        source.collect()


PARALLELISM = """
import sys
from pyspark.sql import SparkSession
import squill as sq

builder = SparkSession.builder.master("local[4]").config("spark.task.cpus", "2")
session = builder.config("spark.default.parallelism", sys.argv[1]).getOrCreate()
assert sq.spark(session).shards == 2
session.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 200])
def test_default_parallelism_says_nothing_of_slots(parallelism: int) -> None:
    run_driver(PARALLELISM, str(parallelism))


STOPPED = """
import threading, time
import pytest
import squill as sq
from squill.errors import ClusterError
from squill.runtime.spark.session import start_session

def while_tasks_are_at_work(frame):
    time.sleep(60)
    return frame

session = start_session("local[2]", 1)
files, shuffle = [sq.spark(session, channel=channel) for channel in ("files", "shuffle")]
rows = files.from_frame({"t": [1, 2]}, start="t")
assert rows.collect().height == 2
stopping = threading.Timer(3, session.stop)
stopping.start()
with pytest.raises(ClusterError, match="task failed: .*SparkContext was shut down\\nHint: start another session"):
    rows.query(lambda s: s.map_batches(while_tasks_are_at_work)).collect()
stopping.join()
for cluster in (files, shuffle):
    rows = cluster.from_frame({"t": [1, 2]}, start="t")
    for ask in (rows.collect, rows.to_spark, cluster.check, lambda: list(rows.batches())):
        with pytest.raises(ClusterError, match="the Spark session of this cluster has been stopped"):
            ask()
    cluster.close()
with pytest.raises(ClusterError, match="spark: the session has been stopped\\nHint: start another one"):
    sq.spark(session)
with sq.spark(master="local[1]") as again:
    assert again.from_frame({"t": [1, 2]}, start="t").collect().height == 2
"""


@pytest.mark.spark
def test_session_that_somebody_stops_is_said() -> None:
    run_driver(STOPPED)


KILLED = """
import os, signal, subprocess, threading, time
import pytest
import squill as sq
from squill.errors import ClusterError

def while_tasks_are_at_work(frame):
    time.sleep(60)
    return frame

cluster = sq.spark(master="local[2]")
children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid=,comm="], capture_output=True, text=True).stdout
(java,) = [int(line.split()[0]) for line in children.splitlines() if line.split()[1] == "java"]
rows = cluster.from_frame({"t": [1, 2]}, start="t")
assert rows.collect().height == 2
killing = threading.Timer(3, os.kill, (java, signal.SIGKILL))
killing.start()
late = rows.query(lambda s: s.map_batches(while_tasks_are_at_work))
said = "the Java process of the Spark session has ended\\nHint: .*spark.driver.memory"
for ask in (late.collect, rows.collect, cluster.check, lambda: sq.spark(master="local[2]")):
    with pytest.raises(ClusterError, match=said):
        ask()
killing.join()
cluster.close()
with pytest.raises(ClusterError, match="Start Python anew"):
    sq.spark(master="local[2]")
"""


@pytest.mark.spark
def test_java_that_is_killed_is_said() -> None:
    """As the system does it where memory is short."""
    run_driver(KILLED)


def in_a_worker(cluster: sq.Cluster, function: Callable[[], str]) -> str:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"answer": [function()]})

    table = session_of(cluster).range(0, 1, 1, 1).mapInArrow(run, "answer string").toArrow()
    (answer,) = table.column("answer").to_pylist()
    return str(answer)


@pytest.mark.spark
def test_polars_keeps_freed_memory_in_workers(spark_cluster: sq.Cluster) -> None:
    assert in_a_worker(spark_cluster, lambda: os.environ["_RJEM_MALLOC_CONF"]).endswith(",".join(KEPT_FOR))


@pytest.mark.spark
def test_workers_run_the_drivers_python_and_package(spark_cluster: sq.Cluster) -> None:
    def where() -> str:
        import sys

        import squill as sq

        return f"{sys.executable} {sq.__file__}"

    assert in_a_worker(spark_cluster, where) == f"{sys.executable} {sq.__file__}"


@pytest.mark.spark
def test_polars_in_a_worker_uses_the_cores_of_its_task(spark_cluster: sq.Cluster) -> None:
    def threads() -> str:
        import polars as pl

        return str(pl.thread_pool_size())

    assert in_a_worker(spark_cluster, threads) == "1"


FORK = """
import os, sys
from squill.runtime.spark import daemon
def serve():
    import polars as pl
    if os.fork() == 0:
        rows = pl.DataFrame({"a": [1, 2, 1]}).lazy().group_by("a").len().collect().height
        os._exit(0 if rows == 2 else 1)
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
daemon.daemon.manager = serve
daemon.main()
"""


def test_workers_forked_from_the_daemon_can_use_polars(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK], timeout=120, check=False, env=dict(os.environ))
    assert done.returncode == 0


def held_below(folder: Path) -> list[str]:
    """Return the files of a folder that have no name any more and that some process of ours has open."""
    held: list[str] = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # processes end, and some are not ours
            held.append(str(link.readlink()))
    return [name for name in held if name.startswith(str(folder)) and name.endswith(" (deleted)")]


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="who has what open is not told")
def test_workers_let_go_of_the_files_that_they_have_read(spark_cluster: sq.Cluster, spark_folder: Path) -> None:
    rows = spark_cluster.from_frame({"k": list(range(1_000))}).rekey("k").redistribute()
    assert rows.query(lambda s: s.where(sq.col("k") < 10)).collect().height == 10
    until = time.monotonic() + 30
    while found := held_below(spark_folder):
        assert time.monotonic() < until, found
        time.sleep(0.05)
