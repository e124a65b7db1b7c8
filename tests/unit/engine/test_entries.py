from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from squill.engine import row_store
from squill.engine.batch import Batch
from squill.engine.entries import Entries
from squill.time import INFINITY

TYPES = {"x": pl.Int64()}


def rows(*numbers: int) -> Batch:
    """Intervals [x, x + 1)."""
    return Batch(np.array(numbers, np.int64), 1, {"x": pl.Series("x", numbers, pl.Int64)})


def values(entries: Entries, numbers: np.ndarray) -> list[int]:
    found = entries.columns(numbers)["x"].to_list()
    assert entries.start[numbers].tolist() == found
    return found


def test_every_open_event_has_a_number_of_its_own() -> None:
    entries = Entries(TYPES)
    first, second = entries.add(rows(1, 2, 3)), entries.add(rows(*range(4, 60)))
    assert len({*first.tolist(), *second.tolist()}) == 59
    assert values(entries, np.concatenate([second, first])) == [*range(4, 60), 1, 2, 3]
    assert entries.live == 59


def test_numbers_are_used_again() -> None:
    entries = Entries(TYPES)
    for round_ in range(100):
        numbers = entries.add(rows(round_, round_ + 1))
        assert numbers.max() < 16
        assert values(entries, numbers) == [round_, round_ + 1]
        entries.free(numbers)
    assert entries.live == 0


def test_an_end_edge_begins_where_its_event_did() -> None:
    entries = Entries(TYPES)
    edges = Batch(np.array([5, 9]), np.array([INFINITY, 2]), {"x": pl.Series("x", [1, 2])})
    assert entries.start[entries.add(edges)].tolist() == [5, 2]


def test_chains_begin_empty_for_numbers_that_are_used_again() -> None:
    entries = Entries(TYPES)
    numbers = entries.add(rows(1))
    entries.following[numbers] = 7
    entries.free(numbers)
    assert entries.following[entries.add(rows(2))].tolist() == [-1]


def test_compacting_the_store_leaves_numbers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "SLACK", 8)
    entries = Entries(TYPES)
    kept = entries.add(rows(1000, 1001))
    for number in range(50):
        entries.free(entries.add(rows(number)))
        assert len(entries._store) <= 2 * 2 + 8 + 1
    assert values(entries, kept) == [1000, 1001]


@pytest.mark.parametrize("size", [3, 16, 40])
def test_loaded_entries_go_on_apart_from_the_first(size: int) -> None:
    first = Entries(TYPES)
    numbers = first.add(rows(*range(size)))
    first.free(numbers[:2])
    state = first.save()
    second = Entries(TYPES)
    second.load(state)
    first.free(numbers[2:])
    assert second.live == size - 2
    assert values(second, numbers[2:]) == list(range(2, size))
    more = second.add(rows(*range(100, 140)))
    assert not set(more.tolist()) & set(numbers[2:].tolist())
    assert values(second, np.concatenate([numbers[2:], more])) == [*range(2, size), *range(100, 140)]
