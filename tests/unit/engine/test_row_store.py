from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine import row_store
from squill.engine.row_store import RowStore

TYPES = {"x": pl.Int64(), "l": pl.List(pl.String())}


def columns(*numbers: int) -> dict[str, pl.Series]:
    return {
        "x": pl.Series("x", numbers, pl.Int64),
        "l": pl.Series("l", [[str(number)] for number in numbers], pl.List(pl.String)),
    }


def stored(*numbers: int) -> RowStore:
    store = RowStore(TYPES)
    store.append(columns(*numbers))
    return store


def at(store: RowStore, *places: int) -> list[int]:
    found = store.gather(np.array(places, np.int64))
    assert found["l"].to_list() == [[str(number)] for number in found["x"]]
    return found["x"].to_list()


def test_rows_keep_their_places_while_others_come() -> None:
    store = RowStore(TYPES)
    assert [store.append(columns(*numbers)) for numbers in ((1, 2), (), (3,), (4, 5))] == [0, 2, 2, 3]
    assert len(store) == 5
    assert at(store, 4, 0, 2, 2) == [5, 1, 3, 3]
    assert at(store) == []


def test_rows_without_columns_are_counted() -> None:
    store = RowStore({})
    assert [store.append({}, 3), store.append({}, 2)] == [0, 3]
    assert len(store) == 5
    assert store.gather(np.array([1])) == {}


def test_kept_rows_move_together() -> None:
    store = stored(*range(10))
    store.keep(np.array([7, 2]))
    assert len(store) == 2
    assert at(store, 0, 1) == [7, 2]
    assert store.append(columns(9)) == 2


def test_a_store_is_wasteful_when_most_of_many_rows_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "SLACK", 4)
    store = stored(*range(10))
    assert [store.is_wasteful(live) for live in (0, 2, 3, 10)] == [True, True, False, False]


def test_a_loaded_store_changes_neither_the_saved_one_nor_its_copies() -> None:
    store = stored(1, 2)
    first, second = RowStore(TYPES), RowStore(TYPES)
    first.load(store.save())
    second.load(store.save())
    store.append(columns(3))
    first.append(columns(4))
    assert (at(store, 0, 1, 2), at(first, 0, 1, 2)) == ([1, 2, 3], [1, 2, 4])
    assert (len(second), at(second, 0, 1)) == (2, [1, 2])


def test_what_was_gathered_does_not_change() -> None:
    store = stored(1, 2)
    found = store.gather(np.array([0, 1]))
    store.append(columns(3))
    store.keep(np.array([2]))
    assert found["x"].to_list() == [1, 2]
