"""Keys that were looked up lately, and tables that remember them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.key_table import KeyTable
from squill.engine.recent_keys import MOST_KEYS, PLACES, RecentKeys

KEYS = st.sampled_from([0, 1, 7, -1, PLACES, 3 * PLACES, 1 << 40, -(1 << 63), (1 << 63) - 1])


def test_an_unknown_key_is_not_that_of_slot_0() -> None:
    out = np.empty(2, np.int32)
    assert RecentKeys().recall(np.array([5, 6]), out) == 2
    assert out.tolist() == [-1, -1]


def test_of_keys_that_share_a_place_the_last_is_known() -> None:
    recent, words, out = RecentKeys(), np.array([0, 1 << 50]), np.empty(2, np.int32)
    words[1] = next(key for key in range(1 << 14, 1 << 20) if _shares_a_place(0, key))
    recent.remember(words, np.array([0, 1], np.int32))
    assert recent.recall(words, out) == 1
    assert out.tolist() == [-1, 1]


def _shares_a_place(one: int, other: int) -> bool:
    recent, out = RecentKeys(), np.empty(1, np.int32)
    recent.remember(np.array([one, other]), np.array([0, 1], np.int32))
    return recent.recall(np.array([one]), out) == 1


@pytest.mark.parametrize("key", [0, 1, PLACES, -1, -(1 << 63)])
def test_no_key_is_known_at_first(key: int) -> None:
    out = np.empty(1, np.int32)
    assert RecentKeys().recall(np.array([key]), out) == 1
    assert RecentKeys().tally(np.array([key]))[2].tolist() == [0]


@settings(deadline=None, max_examples=200)  # the first call compiles
@given(st.lists(st.lists(KEYS | st.none(), min_size=1, max_size=9), max_size=9), st.lists(KEYS, max_size=4))
def test_counts_are_those_of_the_slots_of_all_rows(batches: list[list[int | None]], gone: list[int]) -> None:
    table, counted = KeyTable([pl.Int64()]), np.zeros(64, np.int64)
    expected: dict[int | None, int] = {}
    for keys in batches:
        column = pl.Series(keys, dtype=pl.Int64)
        tally = table.tally([column])
        slots, counts = (table.slots([column]), np.ones(len(keys), np.int64)) if tally is None else tally
        np.add.at(counted, slots, counts)
        for key in keys:
            expected[key] = expected.get(key, 0) + 1
        found = table.find([pl.Series(list(expected), dtype=pl.Int64)])
        assert counted[found].tolist() == list(expected.values())
        leaving = [key for key in gone if key in expected]
        slots = table.find([pl.Series(leaving, dtype=pl.Int64)])
        counted[slots] = 0
        table.release(np.unique(slots))
        for key in set(leaving):
            del expected[key]


def test_a_slot_that_was_given_back_is_not_known() -> None:
    table = KeyTable([pl.Int64()])
    assert table.slots([pl.Series([7, 8])]).tolist() == [0, 1]
    table.release(np.array([0]))
    assert table.find([pl.Series([7, 8])]).tolist() == [-1, 1]
    assert table.slots([pl.Series([9, 7])]).tolist() == [0, 2]


@settings(deadline=None, max_examples=200)  # the first call compiles
@given(st.lists(st.tuples(st.booleans(), st.lists(KEYS | st.none(), min_size=1, max_size=6)), max_size=12))
def test_slots_are_those_of_a_dictionary(steps: list[tuple[bool, list[int | None]]]) -> None:
    table, held = KeyTable([pl.Int64()]), dict[int | None, int]()
    for is_release, keys in steps:
        if is_release:
            gone = [key for key in dict.fromkeys(keys) if key in held]
            if gone:
                table.release(np.array([held.pop(key) for key in gone]))
            continue
        for key, slot in zip(keys, table.slots([pl.Series(keys, dtype=pl.Int64)]).tolist(), strict=True):
            assert held.setdefault(key, slot) == slot
    assert len(set(held.values())) == len(held) == table.live


@pytest.mark.parametrize("keys", [np.arange(2 * MOST_KEYS), np.arange(500) << 20, -np.arange(3_000) * 1_000_003])
def test_many_keys_and_keys_of_high_bits_are_found_again(keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    table, column = KeyTable([pl.Int64()]), pl.Series(keys)
    first = table.slots([column])
    assert first.tolist() == list(range(len(keys)))
    for _ in range(2):
        assert (table.slots([column.reverse()]) == first[::-1]).all()


def test_floats_and_text_of_few_values_are_found_again() -> None:
    for column in (pl.Series([0.5, -0.0, 0.0, float("nan")]), pl.Series(["a", "b", "b", "a"])):
        table = KeyTable([column.dtype])
        assert table.slots([column]).tolist() == table.slots([column]).tolist()
