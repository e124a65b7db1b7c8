"""Keys in order are merged, and every answer is that of the look-ups."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine import key_table
from squill.engine.ascending_keys import MOST_KEYS_PER_ROW, AscendingKeys
from squill.engine.columns import Int64s, read_only
from squill.engine.kernels.ascending_keys import BLOCK, is_ascending
from squill.engine.key_table import KeyTable


@pytest.mark.parametrize("size", [0, 1, 2, BLOCK, BLOCK + 1, BLOCK + 2, 3 * BLOCK])
def test_order_is_told_at_every_place(size: int) -> None:
    values = np.arange(size)
    assert is_ascending(read_only(values), True)
    for place in range(1, size):
        other = values.copy()
        other[place] = other[place - 1]
        assert is_ascending(read_only(other), False)
        assert not is_ascending(read_only(other), True)
        if place > 1:
            other[place] -= 1
            assert not is_ascending(read_only(other), False)


@pytest.mark.parametrize("seed", range(20))
def test_a_merge_finds_what_is_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(-30, 30, rng.integers(1, 40)))
    asked = np.sort(rng.integers(-40, 40, rng.integers(len(keys), 100)))
    found = _of(keys).find_rows(read_only(asked))
    assert found is not None
    rows = np.arange(len(asked)) if found[0] is None else found[0]
    assert rows.tolist() == np.flatnonzero(np.isin(asked, keys)).tolist()
    assert keys[found[1]].tolist() == asked[rows].tolist()


def _of(keys: Int64s) -> AscendingKeys:
    found = AscendingKeys.of(keys)
    assert found is not None
    return found


def test_where_all_are_there_no_rows_are_listed() -> None:
    assert _of(np.array([1, 4])).find_rows(read_only(np.array([1, 4, 4]))) is not None
    rows, slots = _of(np.array([1, 4])).find_rows(read_only(np.array([1, 4, 4])))  # type: ignore[misc]
    assert rows is None
    assert slots.tolist() == [0, 1, 1]


def test_few_rows_are_no_reason_to_pass_by_all_keys() -> None:
    keys = _of(np.arange(2 * MOST_KEYS_PER_ROW + 1))
    assert keys.find_rows(read_only(np.arange(2))) is None
    assert keys.find_rows(read_only(np.arange(3))) is not None


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_table, "_SIEVED_ROWS", 4)
    monkeypatch.setattr(key_table, "_SAMPLE_ROWS", 2)


def rows_of(table: KeyTable, asked: pl.Series) -> list[tuple[int, int]]:
    rows, slots = table.find_rows([asked])
    numbers = range(len(asked)) if rows is None else rows.tolist()
    found = list(zip(numbers, slots.tolist(), strict=True))
    assert found == [(row, slot) for row, slot in enumerate(table.find([asked]).tolist()) if slot >= 0]
    return found


@pytest.mark.usefixtures("merged")
@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64, pl.Float64, pl.Date], ids=str)
def test_tables_find_the_same_by_a_merge(dtype: type[pl.DataType]) -> None:
    table = KeyTable([dtype()])
    table.slots([pl.Series([1, 3, 7, 20], dtype=pl.Int32).cast(dtype)])
    asked = pl.Series([0, 1, 1, 3, 5, 20, 21], dtype=pl.Int32).cast(dtype)
    assert rows_of(table, asked) == [(1, 0), (2, 0), (3, 1), (5, 3)]
    assert table._ascending is not None


@pytest.mark.usefixtures("merged")
def test_keys_that_come_go_or_are_null_are_told() -> None:
    table = KeyTable([pl.Int64()])
    asked = pl.Series([1, 2, 3, 4, 5, 6])
    table.slots([pl.Series([1, 3, 5])])
    assert rows_of(table, asked) == [(0, 0), (2, 1), (4, 2)]
    table.slots([pl.Series([4])])
    assert rows_of(table, asked) == [(0, 0), (2, 1), (3, 3), (4, 2)]
    table.release(np.array([0, 3]))
    assert rows_of(table, asked) == [(2, 1), (4, 2)]
    table.slots([pl.Series([None], dtype=pl.Int64)])
    assert rows_of(table, pl.Series([None, 3, 4, 5])) == [(0, 3), (1, 1), (3, 2)]


@pytest.mark.usefixtures("merged")
def test_rows_in_another_order_are_looked_up() -> None:
    table = KeyTable([pl.Int64()])
    table.slots([pl.Series(range(0, 100, 2))])
    assert len(rows_of(table, pl.Series(range(99, -1, -1)))) == 50
