"""Sharded plans, random in their movements, on Spark: what their definition says, whatever carries the rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import squill as sq
from squill.runtime.spark.runtime import SparkRuntime
from squill.runtime.spark.small_waves import ROWS_ENVIRONMENT_VARIABLE
from squill.testing import assert_same_events, reference
from tests.property import test_sharded_plans
from tests.property.test_sharded_plans import JOINS, Frame, aggregate_of, counted, join_of, moves
from tests.spark.shared import session_of

pytestmark = pytest.mark.spark

LAYOUTS = [(1, 3), (2, 2), (3, 1)]
CHANNELS = ["files", "shuffle"]


@pytest.fixture(autouse=True)
def functions_go_along() -> Iterator[None]:
    """Executors have not the modules of the tests."""
    cloudpickle.register_pickle_by_value(test_sharded_plans)
    yield
    cloudpickle.unregister_pickle_by_value(test_sharded_plans)


def cluster_of(shared: sq.Cluster, size: tuple[int, int], channel: str, folder: Path) -> sq.Cluster:
    machines, cores = size
    return sq.Cluster(SparkRuntime(session_of(shared), machines=machines, cores=cores, folder=folder, channel=channel))


aggregates = st.tuples(Frame, moves, moves, st.booleans())
joins = st.tuples(Frame, Frame, st.sampled_from(sorted(JOINS)), moves, moves)
places = st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(CHANNELS))
driver_rows = st.sampled_from(["0", "100000"])


def check_aggregate(cluster: sq.Cluster, drawn: tuple[pl.DataFrame, list[str], list[str], bool]) -> None:
    expected = reference.frame(sq.from_frame(drawn[0], start="t").group_apply("k", counted))
    assert_same_events(aggregate_of(cluster, *drawn).collect(), expected)


def check_join(cluster: sq.Cluster, drawn: tuple[pl.DataFrame, pl.DataFrame, str, list[str], list[str]]) -> None:
    one, other, how, first, second = drawn
    other = other.rename({"x": "y"})
    left, right = sq.from_frame(one, start="t"), sq.from_frame(other, start="t")
    expected = reference.frame(left.with_duration(4).join(right.with_duration(9), on="k"))
    assert_same_events(join_of(cluster, one, other, how, first, second).collect(), expected)


def try_plans(shared: sq.Cluster, folder: Path, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(places, driver_rows, aggregates)
    def aggregates_agree(place: tuple[tuple[int, int], str], rows: str, drawn: Any) -> None:
        with mock.patch.dict(os.environ, {ROWS_ENVIRONMENT_VARIABLE: rows}):
            check_aggregate(cluster_of(shared, *place, folder), drawn)

    @settings(max_examples=examples, deadline=None)
    @given(places, joins)
    def joins_agree(place: tuple[tuple[int, int], str], drawn: Any) -> None:
        check_join(cluster_of(shared, *place, folder), drawn)

    aggregates_agree()
    joins_agree()
    assert list(folder.iterdir()) == []


def test_some_plans(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    try_plans(spark_cluster, tmp_path, 10)


@pytest.mark.faults
def test_many_plans(spark_cluster: sq.Cluster, tmp_path: Path) -> None:
    try_plans(spark_cluster, tmp_path, 100)
