"""Killed at any moment and started again: functions as sinks, and changes in a folder.

A function is called at least once per epoch, always with the same rows.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.live_plans import as_changes, net
from tests.unit.runtime.live.crashes import Killed

CASES = [
    Killed(
        plan="windows",
        shards=2,
        sink="function",
        moments=(("delivering", 2), ("delivered", 2), ("committing", 3), ("committed", 2), ("half a record", 4)),
    ),
    Killed(
        plan="joined",
        shards=1,
        sink="function",
        moments=(("delivered", 1), ("answer", 2), ("after a state", 3), ("delivering", 3), ("any time", 20)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plan} on {case.shards}")
def test_the_function_has_all_rows_and_the_same_ones_for_an_epoch(case: Killed, tmp_path: Path) -> None:
    kills = case.run(tmp_path)
    epochs: dict[int, list[list[int]]] = {}
    for line in (tmp_path / "delivered").read_text().splitlines():
        epoch, rows = json.loads(line)
        assert epochs.setdefault(epoch, rows) == rows
    assert sorted(tuple(row) for rows in epochs.values() for row in rows) == case.expected()
    assert kills == len(case.moments)


CHANGES = Killed(
    plan="windows",
    shards=3,
    emit="changes",
    moments=(("half a record", 5), ("any time", 30), ("committed", 1), ("before a state", 2), ("answer", 3)),
)


def test_changes_in_a_folder_sum_up_to_the_answer(tmp_path: Path) -> None:
    kills = CHANGES.run(tmp_path)
    found = pl.concat([pl.read_parquet(file) for file in sorted((tmp_path / "out").glob("*.parquet"))]).rows()
    expected = CHANGES.expected()
    columns = [f"c{number}" for number in range(len(expected[0]))]
    assert net(found) == net(as_changes(pl.DataFrame(expected, schema=columns, orient="row")))
    assert kills == len(CHANGES.moments)
