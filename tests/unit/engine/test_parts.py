from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from squill.engine import parts as module
from squill.engine.batch import Batch
from squill.engine.parts import PARTS, OfPart, Parts, state_bytes
from squill.errors import BudgetExceededError
from tests.mapped_files import mapped_files
from tests.unit.engine.test_time_sorter import COLUMNS

PUT_ASIDE = """
import os, signal
import polars as pl
from squill.engine import parts
from squill.engine.batch import Batch
parts.HELD_BYTES = 0
some = parts.Parts(0)
some.add(Batch.relational({"k": pl.Series([1, 2])}, 2), ("k",))
some.put_state(0, [1])
assert sum(len(rows) for part in range(parts.PARTS) for rows in some.rows_of(part)) == 2
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where parts are put; empty in the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert mapped_files(tmp_path) == 0


def relational(**columns: list[object]) -> Batch:
    series = {name: pl.Series(name, values) for name, values in columns.items()}
    return Batch.relational(series, len(next(iter(series.values()))))


@pytest.mark.parametrize("held_bytes", [0, 10_000, 10**9])
def test_rows_of_a_key_are_in_one_part_in_their_order(
    held_bytes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", held_bytes)
    parts = Parts(0)
    for low in range(0, 1_000, 100):
        parts.add(relational(k=[f"key {i % 97}" for i in range(low, low + 100)], i=list(range(low, low + 100))), ("k",))
    found = [[row for batch in parts.rows_of(part) for row in batch.columns["i"]] for part in range(PARTS)]
    parts.close()
    assert sorted(i for rows in found for i in rows) == list(range(1_000))
    assert all(rows == sorted(rows) for rows in found)
    keys = [{i % 97 for i in rows} for rows in found]
    assert sum(map(len, keys)) == 97


def test_depths_go_by_bits_of_their_own() -> None:
    keys = {"k": pl.Series(range(10_000))}
    (first,) = [OfPart(("k",), 3, PARTS, 0)(keys)]
    again = [int(OfPart(("k",), part, PARTS, 1)({"k": keys["k"].filter(first)}).sum()) for part in range(PARTS)]
    assert min(again) > first.sum() / PARTS / 2


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.dtype))
def test_columns_of_every_type_come_back(column: pl.Series, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    parts = Parts(0)
    parts.add(Batch.relational({"k": pl.Series("k", [1, 1, 1]), "c": column.alias("c")}, 3), ("k",))
    (batch,) = [batch for part in range(PARTS) for batch in parts.rows_of(part)]
    parts.close()
    assert batch.columns["c"].dtype == column.dtype
    assert batch.columns["c"].equals(column.alias("c"))


def test_what_was_worked_off_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    parts = Parts(0)
    parts.add(relational(k=list(range(100))), ("k",))
    parts.put_state(0, {"keys": np.arange(3)})
    assert parts.state(0)["keys"].tolist() == [0, 1, 2]
    before = mapped_files(folder)
    parts.forget(0)
    gone = before - mapped_files(folder)
    parts.close()
    assert gone == 2
    assert parts.state(0) is None


def test_parts_that_nobody_has_leave_nothing(folder: Path) -> None:
    parts = Parts(0)
    parts.put_state(1, [1])
    assert mapped_files(folder) == 1
    del parts


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    parts = Parts(0)
    with pytest.raises(BudgetExceededError, match="cannot be written to the temporary folder: No such file"):
        parts.put_state(0, [1])
    with pytest.raises(BudgetExceededError, match="cannot be written to the temporary folder: No such file") as error:
        parts.add(relational(k=[1]), ("k",))
    assert "TMPDIR" in str(error.value)


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Spark kills those whose task it cancels, and the system those that take too much."""
    killed = subprocess.run([sys.executable, "-c", PUT_ASIDE], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_the_size_of_a_state_counts_what_it_holds() -> None:
    batch = relational(k=[1, 2])
    assert state_bytes({"a": [np.zeros(2), (np.zeros(1, np.int8), 7)], "b": batch, "c": "text"}) == 16 + 1 + 16
