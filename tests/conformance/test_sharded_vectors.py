"""Every worked case gives its expected rows on clusters of every shape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import squill as sq
from squill.testing import assert_same_events
from tests.conformance.cases import CASES, QUERIES

SHAPES = {"one shard": (1, 1), "four shards": (4, 1), "two machines": (2, 2)}


@pytest.fixture(scope="module", params=list(SHAPES.values()), ids=list(SHAPES))
def cluster(request: pytest.FixtureRequest) -> Iterator[sq.Cluster]:
    cores, machines = request.param
    with sq.local(cores=cores, machines=machines) as made:
        yield made


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("name", QUERIES)
def test_cluster_gives_the_expected_rows(name: str, cluster: sq.Cluster) -> None:
    query, case = QUERIES[name], CASES[name]
    assert_same_events(query.stream(case).collect(on=cluster), query.expected(case))
