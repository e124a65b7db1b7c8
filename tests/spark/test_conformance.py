"""Every worked case gives its expected rows on Spark; every day on two machines of two shards."""

from __future__ import annotations

from pathlib import Path

import pytest

import squill as sq
from squill.runtime.spark.runtime import SparkRuntime
from squill.testing import assert_same_events
from tests.conformance.cases import CASES, QUERIES
from tests.spark.shared import runtime_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python"),
]


def check(name: str, cluster: sq.Cluster, size: tuple[int, int], folder: Path | None) -> None:
    machines, cores = size
    runtime = SparkRuntime(runtime_of(cluster).session, machines=machines, cores=cores, folder=folder)
    query, case = QUERIES[name], CASES[name]
    assert_same_events(query.stream(case).collect(on=sq.Cluster(runtime)), query.expected(case))


@pytest.mark.parametrize("name", QUERIES)
def test_two_machines_of_two_shards(spark_cluster: sq.Cluster, tmp_path: Path, name: str) -> None:
    check(name, spark_cluster, (2, 2), tmp_path)


@pytest.mark.faults
@pytest.mark.parametrize("through_files", [True, False], ids=["files", "shuffle"])
@pytest.mark.parametrize("size", [(1, 1), (4, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("name", QUERIES)
def test_every_size(
    spark_cluster: sq.Cluster, tmp_path: Path, name: str, size: tuple[int, int], through_files: bool
) -> None:
    check(name, spark_cluster, size, tmp_path if through_files else None)
