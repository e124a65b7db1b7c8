"""Fixtures that several folders of tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import squill as sq


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared cluster keeps its runs; empty whenever none is under way."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def spark_cluster(spark_folder: Path) -> Iterator[sq.Cluster]:
    """Two machines of one core on an embedded Spark; starting one takes ten seconds, so all tests share it."""
    with sq.spark(master="local[2]", machines=2, folder=spark_folder) as cluster:
        yield cluster
