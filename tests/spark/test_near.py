from __future__ import annotations

from pathlib import Path

import pytest

import squill as sq
from squill.runtime.spark import near
from tests.spark.shared import session_of

pytestmark = pytest.mark.spark


def test_hadoop_says_how_much_of_a_file_a_host_has(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    file = tmp_path / "five"
    file.write_bytes(b"12345")
    hosts = near.HadoopHosts(session_of(spark_cluster))
    assert hosts.bytes_held(file.as_uri()) == {"localhost": 5}
    assert hosts.bytes_held("file:///no/such/file") == {}
    assert hosts.bytes_held("unheard://of") == {}


def test_only_filesystems_on_the_clusters_hosts_are_asked(
    spark_cluster: sq.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "five").write_bytes(b"12345")
    path = (tmp_path / "five").as_uri()
    hosts = near.HadoopHosts(session_of(spark_cluster))
    assert (hosts(str(tmp_path / "five")), hosts(path), hosts("s3://bucket/five")) == ((), (), ())
    monkeypatch.setattr(near, "SCHEMES", ("file",))
    assert hosts(path) == ("localhost",)


def test_nobody_is_asked_on_one_host(spark_cluster: sq.Cluster) -> None:
    assert near.hadoop_hosts(session_of(spark_cluster)) is None


@pytest.mark.parametrize("hosts", [[["a", "b"], [], ["c"]], [[], [], []]], ids=["known", "unknown"])
def test_every_task_has_its_number(spark_cluster: sq.Cluster, hosts: list[list[str]]) -> None:
    rows = near.task_rows(session_of(spark_cluster), hosts).selectExpr("id", "spark_partition_id()")
    assert sorted(map(tuple, rows.collect())) == [(0, 0), (1, 1), (2, 2)]
