"""Every worked case gives its expected rows, in the reference and in the engine."""

from __future__ import annotations

from collections import Counter

import pytest

from squill.testing import assert_same_events, reference
from tests.conformance.cases import CASES, LEFT_OUT, NOT_YET, PUSHED, QUERIES

TINY, DEFAULT = 1, None


def test_every_case_stands_in_exactly_one_table() -> None:
    listed = Counter([*QUERIES, *PUSHED, *NOT_YET, *LEFT_OUT])
    assert listed == Counter(CASES.keys())


@pytest.mark.parametrize("name", QUERIES)
def test_reference_gives_the_expected_rows(name: str) -> None:
    query, case = QUERIES[name], CASES[name]
    assert_same_events(reference.run(query.stream(case)), query.expected(case))


@pytest.mark.filterwarnings("ignore:detect. the functions of the pattern run as plain Python")
@pytest.mark.parametrize("batch_rows", [TINY, DEFAULT])
@pytest.mark.parametrize("name", QUERIES)
def test_engine_gives_the_expected_rows(name: str, batch_rows: int | None) -> None:
    query, case = QUERIES[name], CASES[name]
    assert_same_events(query.stream(case).collect(batch_rows=batch_rows), query.expected(case))
