"""What messages show of a value: enough to know it again, never all of a large one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.errors import DatasetNotFoundError
from squill.wording import LONGEST, near_names, shortened


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


class Poem:
    def __repr__(self) -> str:
        return "roses are red\nviolets are blue"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a" * 250, repr("a" * 250)),
        ((pl.DataFrame({"x": [1]}), 5), "(a DataFrame of shape (1, 1), 5)"),
        (pl.Series([1, 2]), "a Series of shape (2,)"),
        (np.int64(3), "np.int64(3)"),
        ({"x": list(range(99))}, "{'x': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …]}"),
        (Broken(), "a Broken"),
        (Poem(), "a Poem"),
    ],
)
def test_a_value_is_shown_in_a_few_words(value: object, expected: str) -> None:
    assert shortened(value) == expected


def test_nothing_is_longer_than_a_few_lines() -> None:
    for value in ("a" * 10_000, ["b" * 250] * 9, sq.from_frame({f"column_{i}": [i] for i in range(99)})):
        assert len(shortened(value)) <= LONGEST


def test_a_number_that_python_does_not_write_is_told_by_its_size() -> None:
    assert shortened(10**5000) == "an int of 16610 bits"


def test_names_in_another_case_are_near() -> None:
    assert near_names("MY DATA", ["my data", "costs"]) == ["my data"]
    assert near_names("clicks", ["Clicks", "CLICKS", "clicked", "click"], most=2) == ["Clicks", "CLICKS"]


def test_an_unknown_dataset_lists_one_of_another_case() -> None:
    with sq.local(cores=1) as cluster:
        cluster.from_frame({"x": [1]}).to_memory("my data")
        with pytest.raises(DatasetNotFoundError, match="did you mean 'my data'"):
            cluster.dataset("MY DATA")
        assert [dataset.name for dataset in cluster.search("mYdAtA")] == ["my data"]
