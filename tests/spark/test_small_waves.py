"""What the driver runs itself: the last waves of plans over few rows, and nothing of the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import squill as sq
from squill.errors import NumericOverflowError
from squill.runtime.spark.jobs import Jobs
from squill.runtime.spark.small_waves import ROWS_ENVIRONMENT_VARIABLE
from squill.testing import assert_same_events
from tests.spark.test_plans import ADS, AGGREGATES, CLICKS, JOINS, SIZES, cluster_of, expected

pytestmark = pytest.mark.spark


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs that Spark was given, as how many tasks each has; the driver may run what is small."""
    monkeypatch.setenv(ROWS_ENVIRONMENT_VARIABLE, "100000")
    begun: list[int] = []
    run_tasks = Jobs.run_tasks

    def counting(self: Jobs, task: Any, ddl: str, hosts: Any, *, one_by_one: bool) -> Iterator[Any]:
        begun.append(len(hosts))
        return run_tasks(self, task, ddl, hosts, one_by_one=one_by_one)

    monkeypatch.setattr(Jobs, "run_tasks", counting)
    return begun


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_driver_adds_up(
    spark_cluster: sq.Cluster, tmp_path: Path, size: tuple[int, int], name: str, jobs: list[int]
) -> None:
    cluster = cluster_of(spark_cluster, size, "files", tmp_path)
    clicks = cluster.from_frame(CLICKS, start="t").rekey("ad")
    run = AGGREGATES[name](clicks, clicks).run()
    assert_same_events(run.frame, expected(name))
    works = run.report().works
    last = max(work.fragment for work in works)
    assert sum(work.rows_out for work in works if work.fragment == last) == run.frame.height
    assert jobs == [size[0]], "the others are the driver's"
    assert list(tmp_path.iterdir()) == []


def test_what_may_give_more_than_it_takes_is_left_to_spark(
    spark_cluster: sq.Cluster, tmp_path: Path, jobs: list[int]
) -> None:
    cluster = cluster_of(spark_cluster, (2, 1), "files", tmp_path)
    clicks, ads = cluster.from_frame(CLICKS, start="t").rekey("ad"), cluster.from_frame(ADS).rekey("ad")
    assert_same_events(JOINS["both redistributed"](clicks, ads).collect(), expected("join"))
    lists = clicks.redistribute().query(lambda s: s.aggregate(prices=sq.collect_list("price")))
    assert lists.collect().height == CLICKS.select("t", "ad").n_unique()
    chopped = clicks.redistribute().query(lambda s: s.with_duration(100).chop(1))
    assert chopped.collect().height == 100 * CLICKS.height
    assert jobs == [4, 2, 2, 2, 2, 2]


def test_functions_of_the_users_are_left_to_spark(spark_cluster: sq.Cluster, tmp_path: Path, jobs: list[int]) -> None:
    driver = os.getpid()

    def pids(frame: pl.DataFrame) -> pl.DataFrame:
        import os

        return frame.with_columns(pid=pl.lit(os.getpid()))

    cluster = cluster_of(spark_cluster, (2, 1), "files", tmp_path)
    moved = cluster.from_frame(CLICKS, start="t").rekey("ad").redistribute()
    found = moved.query(lambda s: s.map_batches(pids, schema={**s.schema, "pid": pl.Int32})).collect()
    assert driver not in found["pid"]
    assert jobs == [2, 2]


def test_many_rows_are_left_to_spark(
    spark_cluster: sq.Cluster, tmp_path: Path, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(spark_cluster, (2, 1), "files", tmp_path)
    plan = AGGREGATES["a"](cluster.from_frame(CLICKS, start="t").rekey("ad"), cluster.from_frame(ADS))
    monkeypatch.setenv(ROWS_ENVIRONMENT_VARIABLE, str(CLICKS.height))
    assert_same_events(plan.collect(), expected("a"))
    monkeypatch.setenv(ROWS_ENVIRONMENT_VARIABLE, str(CLICKS.height - 1))
    assert_same_events(plan.collect(), expected("a"))
    assert jobs == [2, 2, 2]


def test_text_of_many_bytes_is_left_to_spark(spark_cluster: sq.Cluster, tmp_path: Path, jobs: list[int]) -> None:
    cluster = cluster_of(spark_cluster, (2, 1), "files", tmp_path)
    text = CLICKS.head(100).with_columns(text=pl.col("t").cast(pl.String) + pl.lit("x" * 100_000))
    moved = cluster.from_frame(text, start="t").rekey("ad").redistribute()
    moved = moved.query(lambda s: s.where(sq.col("price") >= 0))
    assert moved.collect()["text"].sort().to_list() == text["text"].sort().to_list()
    assert jobs == [2, 2]


def test_what_fails_here_is_what_fails_there(spark_cluster: sq.Cluster, tmp_path: Path, jobs: list[int]) -> None:
    cluster = cluster_of(spark_cluster, (2, 1), "files", tmp_path)
    rows = pl.DataFrame({"t": [1, 1, 1], "k": [7, 7, 8], "x": [2**62, 2**62, 1]})
    plan = cluster.from_frame(rows, start="t").rekey("k").redistribute().query(lambda s: s.aggregate(x=sq.sum("x")))
    with pytest.raises(NumericOverflowError, match=r"^fragment 2, shard \d of 2, aggregate: "):
        plan.collect()
    assert jobs == [2, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_for_the_driver_alone(
    spark_cluster: sq.Cluster, tmp_path: Path, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cluster = cluster_of(spark_cluster, (2, 1), "files", tmp_path)
    plan = AGGREGATES["b"](cluster.from_frame(CLICKS, start="t").rekey("ad"), cluster.from_frame(ADS))
    monkeypatch.setattr("squill.runtime.spark.task.SegmentWriter.__enter__", full)
    assert_same_events(plan.collect(), expected("b"))
    assert jobs == [2, 2]
    assert list(tmp_path.iterdir()) == []
