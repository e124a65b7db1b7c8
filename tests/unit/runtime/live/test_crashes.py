"""Killed at any moment and started again, a query into a folder loses and doubles nothing."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.unit.runtime.live.crashes import Killed

CASES = [
    Killed(
        plan="windows",
        shards=2,
        moments=(("begun", 2), ("before a state", 5), ("publishing", 3), ("committing", 2), ("half a record", 4)),
    ),
    Killed(
        plan="sessions",
        shards=2,
        moments=(("answer", 2), ("committed", 2), ("after a state", 7), ("reading", 9), ("any time", 10)),
    ),
    Killed(
        plan="joined",
        shards=2,
        moments=(("working", 6), ("pruning", 3), ("listing", 4), ("publishing", 2), ("committed", 3)),
    ),
    # Killed while shards are divided: with some parts written, before the commit that counts, and right after it.
    Killed(
        plan="joined",
        begun_with=2,
        shards=4,
        moments=(("committed", 3), ("after a state", 7), ("committing", 1), ("committed", 1)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plan} on {case.shards}")
def test_the_folder_has_what_an_uninterrupted_run_gives(case: Killed, tmp_path: Path) -> None:
    kills = case.run(tmp_path)
    found = pl.concat([pl.read_parquet(file) for file in sorted((tmp_path / "out").glob("*.parquet"))]).rows()
    assert sorted(found) == case.expected()
    assert list((tmp_path / "out").glob(".*")) == []
    assert kills == len(case.moments)
