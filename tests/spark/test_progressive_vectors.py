"""Every worked case as a progressive query on Spark; every day those without times, over pipes, in one order each."""

from __future__ import annotations

import pytest

import squill as sq
from squill.runtime.spark.runtime import SparkRuntime
from squill.testing import assert_same_events
from tests.conformance.cases import QUERIES
from tests.conformance.test_progressive_vectors import BY_USER, RELATIONAL, asked_of_rows, asked_per_user
from tests.early_answers import assert_answers
from tests.spark.shared import session_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python"),
]


def cluster_of(cluster: sq.Cluster, machines: int) -> sq.Cluster:
    return sq.Cluster(SparkRuntime(session_of(cluster), machines=machines, cores=1, folder=None))


@pytest.mark.parametrize("name", RELATIONAL)
def test_rows_come_in_any_order(spark_cluster: sq.Cluster, name: str) -> None:
    query, (tried, *_) = asked_of_rows(name)
    given, coarsen, expected = tried
    assert_answers(query.progressive(given, coarsen=coarsen, on=cluster_of(spark_cluster, 2)), expected)


@pytest.mark.faults
@pytest.mark.parametrize("machines", [1, 3])
@pytest.mark.parametrize("name", RELATIONAL)
def test_rows_come_in_any_order_to_any_number(spark_cluster: sq.Cluster, name: str, machines: int) -> None:
    query, tried = asked_of_rows(name)
    for given, coarsen, expected in tried:
        assert_answers(query.progressive(given, coarsen=coarsen, on=cluster_of(spark_cluster, machines)), expected)


@pytest.mark.faults
@pytest.mark.parametrize("name", QUERIES)
def test_users_come_by_hash(spark_cluster: sq.Cluster, name: str) -> None:
    query, expected = asked_per_user(name)
    answers = list(query.progressive(BY_USER, on=cluster_of(spark_cluster, 2)))
    for early, answer in zip(answers, expected, strict=True):
        assert_same_events(early.frame, answer)
