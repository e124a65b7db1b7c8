"""Spark Connect: what needs no Java in this process works there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import squill as sq
from squill.errors import ClusterError
from tests.spark.shared import run_driver

BESIDE = """
from pyspark.sql import SparkSession
import squill as sq

theirs = SparkSession.builder.remote("sc://localhost").getOrCreate()
with sq.spark(master="sc://localhost") as cluster:
    assert cluster.shards == 2
assert theirs.range(3).count() == 3, "it was stopped with the cluster"
"""

DRIVER = """
import os
import subprocess
import sys
from pathlib import Path
import polars as pl
import squill as sq
from squill.errors import ClusterError, UserFunctionError
from pyspark.sql import SparkSession

folder = Path(sys.argv[1])
session = SparkSession.builder.remote("local[2]").getOrCreate()
frame = pl.DataFrame({"t": range(1_000), "k": [number % 7 for number in range(1_000)]})
count = lambda s: s.tumbling_window(100).count()
expected = sq.from_frame(frame, start="t").group_apply("k", count).collect(sort=True)

def counted(rows):
    return rows.rekey("k").redistribute().query(count)

def refused(kind, text, ask):
    try:
        ask()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

shuffle = sq.spark(session)
assert shuffle.shards == 2, shuffle
assert f"polars {pl.__version__}" in shuffle.check()
table = session.range(1_000).selectExpr("id as t", "id % 7 as k")
files = sq.spark(session, machines=2, folder=folder / "runs", warehouse=folder)
for name, cluster in {"shuffle": shuffle, "files": files}.items():
    assert counted(cluster.from_frame(frame, start="t")).collect(sort=True).equals(expected), name
    low = cluster.from_spark(table, start="t").query(lambda s: s.where(sq.col("k") < 3))
    assert counted(low).collect(sort=True).equals(expected.filter(pl.col("k") < 3)), name
    counted(cluster.from_frame(frame, start="t")).to_storage(folder / name)
    assert sq.scan(folder / name).collect(sort=True).equals(expected), name
    broken = cluster.from_frame(frame, start="t").query(lambda s: s.map_batches(lambda rows: 1 / 0))
    refused(UserFunctionError, "division by zero", broken.collect)
rows = counted(shuffle.from_frame(frame, start="t")).to_spark()
assert pl.from_arrow(rows.toArrow()).sort("start", "end", "k").equals(expected)
kept = counted(files.from_frame(frame, start="t"))
kept.to_memory("m")
assert files.dataset("m").collect(sort=True).equals(expected)
refused(ClusterError, "of Spark Connect need a folder", lambda: sq.spark(session, machines=2, channel="files"))
assert list((folder / "runs").iterdir()) == [], "files were left behind"
for master in ("local[2]", "sc://localhost"):
    refused(ClusterError, "a Spark session is running already", lambda: sq.spark(master=master))
ours = {"SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"}
environment = {name: value for name, value in os.environ.items() if name not in ours}
subprocess.run([sys.executable, "-c", sys.argv[2]], env=environment, timeout=300, check=True)
session.stop()
"""


@pytest.mark.spark
def test_plans_run_on_spark_connect(tmp_path: Path) -> None:
    run_driver(DRIVER, str(tmp_path), BESIDE)


def test_packages_that_connect_needs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ClusterError, match=r"(?s)sc://nowhere is Spark Connect.*pip install 'squill\[connect\]'"):
        sq.spark(master="sc://nowhere")
