from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import squill as sq
from squill.engine.progress.round_robin import RoundRobin, fraction_steps
from squill.plan.assignment import Assignment


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_rows_are_numbered_in_turn_without_gaps(lengths: list[int]) -> None:
    turns = RoundRobin(tuple(lengths))
    numbers = {
        (row, split): int(turns.numbers(split, np.array([row]))[0])
        for split, length in enumerate(lengths)
        for row in range(length)
    }
    assert [numbers[place] for place in sorted(numbers)] == list(range(sum(lengths)))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 12))
def test_every_split_adds_about_as_many_rows_to_each_step(lengths: list[int], steps: int) -> None:
    for split, length in enumerate(lengths):
        found = fraction_steps(np.arange(length), length, steps, split, len(lengths)).tolist()
        assert found == sorted(found)
        assert all(0 <= step < steps for step in found)
        counts = [found.count(step) for step in range(steps)]
        assert all(abs(count - length / steps) < 2 for count in counts)


def test_steps_of_many_rows_do_not_overflow() -> None:
    last = fraction_steps(np.array([2**31 - 1]), 2**31, 2**31 - 1, 99_999, 100_000)
    assert last.tolist() == [2**31 - 2]


@pytest.fixture(scope="module", params=["parquet", "csv"])
def uneven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of 1,000 rows and nine of one."""
    folder = tmp_path_factory.mktemp("uneven")
    for number in range(10):
        frame = pl.DataFrame({"x": range(1_000 if not number else 1)})
        path = folder / f"{number}.{request.param}"
        frame.write_parquet(path) if request.param == "parquet" else frame.write_csv(path)
    return f"{folder}/*.{request.param}"


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (sq.progress.rows(100), [*range(100, 1_001, 100), 1_009]),
        (sq.progress.exponential(100, 2), [100, 300, 700, 1_009]),
        (sq.progress.fractions(2), [504, 1_009]),
    ],
    ids=str,
)
def test_steps_add_as_many_rows_as_they_say_whatever_the_files(
    uneven: str, assignment: Assignment, expected: list[int]
) -> None:
    counted = sq.scan(uneven).aggregate(n=sq.count())
    assert [early.frame.item() for early in counted.progressive(assignment)] == expected
    with sq.local(cores=3) as cluster:
        assert [early.frame.item() for early in counted.progressive(assignment, on=cluster)] == expected


def test_files_of_one_row_do_not_all_come_at_the_first_step(tmp_path: Path) -> None:
    for number in range(100):
        pl.DataFrame({"x": [number]}).write_parquet(tmp_path / f"{number}.parquet")
    counted = sq.scan(tmp_path).aggregate(n=sq.count())
    assert [early.frame.item() for early in counted.progressive(sq.progress.fractions(4))] == [25, 50, 75, 100]
