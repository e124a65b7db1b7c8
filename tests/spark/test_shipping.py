"""Executors that lack packages: Squill itself is sent to them, and what else is missing is said."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import squill as sq
from squill.runtime.spark.shipping import package_archive
from tests.spark.shared import run_driver, session_of
from tests.spark.standalone import python_without, standalone_cluster

ON_A_CLUSTER = """
import os, sys
import squill as sq
from pyspark.sql import SparkSession
# What the driver can import is not for the executors to see.
del os.environ["PYTHONPATH"]
rows = {"t": [1, 2, 3], "k": [1, 1, 2]}

def answer(cluster):
    counts = cluster.from_frame(rows, start="t").rekey("k").redistribute().query(lambda s: s.count())
    return sorted(counts.collect().rows())

def where(number):
    import squill
    from squill.engine.kernels.jit import cache_folder
    return f"{squill.__file__} {cache_folder().name}"

from squill.engine.kernels.jit import cache_folder
from pyspark.sql.functions import udf
expected = sorted(sq.from_frame(rows, start="t").group_apply("k", lambda g: g.count()).collect().rows())
where.__module__ = "__main__"

with sq.spark(master=sys.argv[1], machines=2) as ours:
    assert answer(ours) == expected
    assert sys.argv[2] in os.environ["PYSPARK_PYTHON"]

session = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
theirs = sq.spark(session, machines=2)
sq.spark(session, machines=2)
assert len(session.sparkContext.listArchives) == 1, session.sparkContext.listArchives
print(theirs.check())
assert answer(theirs) == expected
for (place,) in session.range(0, 2, 1, 2).select(udf(where, "string")("id")).collect():
    file, cache = place.split()
    assert file.startswith(sys.argv[2]) and file.endswith("/squill/__init__.py"), file
    assert cache == cache_folder().name, "compiled kernels are not found again"
session.stop()
"""

WITHOUT_POLARS = """
import squill as sq
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
theirs = sq.spark(session)
for ask in theirs.check, theirs.from_frame({"a": [1]}).collect:
    try:
        ask()
    except sq.errors.ClusterError as error:
        assert "numba is missing" in str(error) and "polars is missing" in str(error), error
        assert "pip install squill==" in str(error), error
    else:
        raise AssertionError("nothing was said")
session.stop()
with sq.spark(master="local[1]") as ours:
    try:
        ours.check()
    except sq.errors.ClusterError as error:
        assert "no module named 'polars'" in str(error) and " polars==" in str(error), error
    else:
        raise AssertionError("nothing was said")
"""


@pytest.mark.spark
@pytest.mark.faults
def test_executors_without_the_package_get_the_drivers(tmp_path: Path) -> None:
    python = python_without(tmp_path / "bare", "squill")
    with standalone_cluster(tmp_path, workers=2, cores=1) as address:
        run_driver(ON_A_CLUSTER, address, str(tmp_path), executors_python=python)


@pytest.mark.spark
def test_what_executors_lack_is_said_all_at_once(tmp_path: Path) -> None:
    run_driver(WITHOUT_POLARS, executors_python=python_without(tmp_path / "bare", "polars", "numba"))


@pytest.mark.spark
def test_nothing_is_sent_on_one_host(spark_cluster: sq.Cluster) -> None:
    assert session_of(spark_cluster).sparkContext.listArchives == []


def test_archive_holds_the_package_and_no_bytecode() -> None:
    with zipfile.ZipFile(package_archive()) as archive:
        names = archive.namelist()
    assert {"__init__.py", "py.typed", "engine/kernels/jit.py", "runtime/spark/log4j2.properties"} <= set(names)
    assert not [name for name in names if name.endswith(".pyc")]
