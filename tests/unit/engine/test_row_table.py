from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from squill.engine import row_store
from squill.engine.batch import Batch
from squill.engine.row_table import RowTable

KINDS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "keys": (pl.String(), ["a", None, "b", "c", "d"]),
    "floats": (pl.Float64(), [0.0, None, float("nan"), 1.5, -1.0]),
    "lists": (pl.List(pl.Int64()), [[1], None, [], [None], [1, 2]]),
    "structs": (pl.Struct({"a": pl.Int64()}), [{"a": 1}, None, {"a": None}, {"a": 2}, {"a": 3}]),
}


def batch(kind: str, *choices: int) -> Batch:
    dtype, values = KINDS[kind]
    column = pl.Series("x", [values[choice] for choice in choices], dtype)
    return Batch(np.arange(len(choices)), 1, {"x": column, "n": pl.Series("n", choices, pl.Int64)})


def table(kind: str) -> RowTable:
    return RowTable({"x": KINDS[kind][0], "n": pl.Int64()})


def found(rows: RowTable, slots: np.ndarray) -> list[int]:
    return rows.gather(slots)["n"].to_list()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_payloads_share_a_slot(kind: str) -> None:
    rows = table(kind)
    first = rows.slots(batch(kind, 0, 1, 2, 1, 0))
    again = rows.slots(batch(kind, 2, 3, 0, 3))
    assert [first[3], first[4], again[0], again[2]] == [first[1], first[0], first[2], first[0]]
    assert again[1] == again[3]
    assert (rows.live, len({*first.tolist(), *again.tolist()})) == (4, 4)
    assert found(rows, np.concatenate([again, first])) == [2, 3, 0, 3, 0, 1, 2, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_released_slots_are_used_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "SLACK", 4)
    rows = table(kind)
    kept = rows.slots(batch(kind, 4))
    for round_ in range(40):
        slots = rows.slots(batch(kind, round_ % 4, (round_ + 1) % 4))
        assert found(rows, slots) == [round_ % 4, (round_ + 1) % 4]
        assert found(rows, kept) == [4]
        rows.release(np.unique(slots))
    assert (rows.live, rows.capacity <= 8) == (1, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_table_knows_its_rows(kind: str) -> None:
    first, second = table(kind), table(kind)
    slots = first.slots(batch(kind, 0, 1, 2))
    first.release(slots[1:2])
    second.load(first.save())
    first.release(slots[:1])
    assert second.slots(batch(kind, 2, 0)).tolist() == [slots[2], slots[0]]
    assert found(second, second.slots(batch(kind, 3, 1))) == [3, 1]
    assert second.live == 4


def test_without_columns_there_is_one_payload() -> None:
    rows = RowTable({})
    assert rows.slots(Batch(np.array([1, 2, 3]), 1)).tolist() == [0, 0, 0]
    assert rows.gather(np.array([0])) == {}
