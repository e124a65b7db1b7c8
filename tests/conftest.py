"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import squill as sq
from squill.runtime.spark.small_waves import ROWS_ENVIRONMENT_VARIABLE

# The same examples every time, so that a change is judged by what it changed. SQUILL_RANDOM=1 looks for others.
# A first example may compile a kernel, and machines have slow minutes: no example is timed.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("SQUILL_RANDOM") else "repeatable")

# Java's second compiler makes long jobs fast; those of tests end before it has paid off, and there are two cores.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# What is small is run by the driver, and nearly all is small here: it is to be run by Spark's tasks, where no test says
# otherwise.
os.environ.setdefault(ROWS_ENVIRONMENT_VARIABLE, "0")


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared cluster keeps its runs; empty whenever none is under way."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def spark_cluster(spark_folder: Path) -> Iterator[sq.Cluster]:
    """Two machines of one core on an embedded Spark; starting one takes ten seconds, so all tests share it."""
    with sq.spark(master="local[2]", machines=2, folder=spark_folder) as cluster:
        yield cluster
