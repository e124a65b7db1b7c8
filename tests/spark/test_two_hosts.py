"""A real cluster of two hosts: second attempts beside the first, and tasks near their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.shared import run_driver
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.faults]  # a minute or two each

# A first attempt of the second task waits until there is another one, then both go on, and race.
SPECULATION = """
import sys, time
from pathlib import Path
import polars as pl
import squill as sq
from pyspark.sql import SparkSession

master, folder = sys.argv[1], Path(sys.argv[2])
shared, out = folder / "shared", folder / "out"
shared.mkdir()
settings = {"enabled": "true", "interval": "50ms", "multiplier": "1.1", "minTaskRuntime": "50ms"}
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
for name, value in settings.items():
    builder = builder.config("spark.speculation" if name == "enabled" else f"spark.speculation.{name}", value)
session = builder.getOrCreate()

def slow(case):
    begun = str(folder / f"{case}-begun")

    def wait(frame):
        from pathlib import Path
        from pyspark import TaskContext
        import time
        context = TaskContext.get()
        if context.partitionId() == 1:
            Path(f"{begun}-{context.attemptNumber()}").touch()
            deadline = time.monotonic() + 600
            while context.attemptNumber() == 0 and not Path(f"{begun}-1").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("Spark has started no second attempt")
                time.sleep(0.01)
        return frame
    return wait

frame = pl.DataFrame({"t": range(4_000), "k": [n % 37 for n in range(4_000)]})
def plan(cluster, case, where):
    rows = cluster.from_frame(frame, start="t", shards=2)
    if where == "before":
        rows = rows.query(lambda s: s.map_batches(slow(case)))
    counts = rows.rekey("k").redistribute().query(lambda s: s.tumbling_window(100).count())
    return counts.query(lambda s: s.map_batches(slow(case))) if where == "after" else counts

expected = sq.from_frame(frame, start="t").group_apply("k", lambda g: g.tumbling_window(100).count()).collect(sort=True)
by_files = sq.spark(session, machines=2, folder=shared)
by_shuffle = sq.spark(session, machines=2)
for name, cluster in (("files", by_files), ("shuffle", by_shuffle)):
    for where in ("before", "after"):
        case = f"{name}-{where}"
        print(case, flush=True)
        assert plan(cluster, case, where).collect(sort=True).equals(expected), case
        assert (folder / f"{case}-begun-1").exists()
    case = f"{name}-stored"
    print(case, flush=True)
    plan(cluster, case, "after").to_storage(out / name)
    assert sq.scan(out / name).collect(sort=True).equals(expected), case
    assert sq.scan(str(out / name / "**/*.parquet"), start="start", end="end").collect(sort=True).equals(expected)
    assert (folder / f"{case}-begun-1").exists()
assert list(shared.iterdir()) == [], "files were left behind"
left = [path.name for path in out.rglob("*") if path.is_file() and path.suffix not in (".parquet", ".json")]
assert left == [], f"files were left behind: {left}"
assert sorted(path.name for path in out.iterdir()) == ["files", "shuffle"]
session.stop()
"""


# Files of which each host has two. Executors work in a folder of their worker, the first of which is on 127.0.0.1.
NEAR = """
import sys, time
from pathlib import Path
import polars as pl
import squill as sq
from pyspark.sql import SparkSession

master, folder = sys.argv[1], Path(sys.argv[2])
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.locality.wait", "60s")
session = builder.getOrCreate()
for home in (0, 1):
    for number in (0, 1):
        frame = pl.DataFrame({"t": range(1_000), "home": [home] * 1_000})
        frame.write_parquet(folder / f"home-{home}-{number}.parquet")

def noting(case):
    places = str(folder / case)

    def note(rows):
        import os
        from pathlib import Path
        (worker,) = [part for part in Path(os.getcwd()).parts if part.startswith("worker-")]
        for home in rows["home"].unique():
            Path(f"{places}-{home}-{worker}").touch()
        return rows
    return note

# A host without an executor is not waited for.
while session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.1)
(folder / "runs").mkdir()
by_files, by_shuffle = sq.spark(session, machines=2, folder=folder / "runs"), sq.spark(session, machines=2)
for case, cluster in (("files", by_files), ("shuffle", by_shuffle)):
    cluster.runtime.hosts_of = lambda path: (f"127.0.0.{1 + int(Path(path).name.split('-')[1])}",)
    rows = cluster.scan(folder / "home-*.parquet", start="t").query(lambda s: s.map_batches(noting(case)))
    counts = rows.rekey("home").redistribute().query(lambda s: s.tumbling_window(1_000).count()).collect(sort=True)
    assert counts["count"].to_list() == [2_000, 2_000], counts
    found = sorted(path.name for path in folder.glob(f"{case}-*"))
    assert found == [f"{case}-{home}-worker-{home}" for home in (0, 1)], found
session.stop()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as address:
        yield address


def test_second_attempts_change_nothing(master: str, tmp_path: Path) -> None:
    run_driver(SPECULATION, master, str(tmp_path))


def test_tasks_run_where_their_files_are(master: str, tmp_path: Path) -> None:
    run_driver(NEAR, master, str(tmp_path))


# Tasks on two hosts, which reach each other and the driver over the address that faces it.
EARLY = """
import sys
import squill as sq

rows = sq.from_frame({"k": [n % 37 for n in range(4_000)], "x": range(4_000)}, name="rows")
query = rows.group_aggregate("k", s=sq.sum("x")).group_aggregate(g=sq.col("s") % 5, n=sq.count())
steps = sq.progress.rows(500)
expected = [early.frame.rows() for early in query.progressive(steps)]
with sq.spark(master=sys.argv[1], machines=3, tls=sys.argv[3] == "tls") as cluster:
    answers = query.progressive(steps, on=cluster)
    assert [early.frame.rows() for early in answers] == expected
    for early in query.progressive(steps, on=cluster):
        break
"""


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_early_answers_of_tasks_on_two_hosts(master: str, tmp_path: Path, way: str) -> None:
    run_driver(EARLY, master, str(tmp_path), way)
