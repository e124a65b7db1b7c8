"""A sieve spares looking for keys that are not there, and changes no answer."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine import key_table
from squill.engine.hashing import hash_columns
from squill.engine.key_sieve import BITS_PER_KEY, KeySieve
from squill.engine.key_table import KeyTable


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_what_is_in_it_is_let_through(inside: list[int], others: list[int]) -> None:
    hashes = hash_columns([pl.Series([*inside, *others], dtype=pl.Int64)])
    through = KeySieve(hashes[: len(inside)]).sifted(hashes)
    assert set(range(len(inside))) <= set(through.tolist())
    assert (np.diff(through) > 0).all()


def test_few_others_are_let_through() -> None:
    hashes = hash_columns([pl.Series(np.arange(200_000))])
    through = KeySieve(hashes[:1_000]).sifted(hashes)
    assert len(through) < 1_000 + 1.2 * 200_000 / BITS_PER_KEY


@pytest.fixture
def always_sieved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_table, "_SIEVED_ROWS", 4)
    monkeypatch.setattr(key_table, "_SAMPLE_ROWS", 2)


def slots_of(table: KeyTable, columns: list[pl.Series]) -> list[int]:
    return [int(slot) for slot in table.find(columns)]


@pytest.mark.usefixtures("always_sieved")
@pytest.mark.parametrize("kinds", [(pl.Int64,), (pl.Float64,), (pl.Int64, pl.Date), (pl.String,)], ids=str)
def test_keys_are_found_as_without_it(kinds: tuple[type[pl.DataType], ...]) -> None:
    rng = np.random.default_rng(7)

    def keys(low: int, high: int, n: int) -> list[pl.Series]:
        values = [None if value % 7 == 0 else int(value) for value in rng.integers(low, high, n)]
        return [pl.Series(values, dtype=pl.Int32).cast(kind) for kind in kinds]

    # More than are remembered by their last look-up.
    table, known = KeyTable([kind() for kind in kinds]), keys(0, 20_000, 9_000)
    expected = dict(zip(zip(*known, strict=True), table.slots(known).tolist(), strict=True))
    for _ in range(3):
        asked = keys(0, 200_000, 5_000)
        slots = [expected.get(key, -1) for key in zip(*asked, strict=True)]
        assert slots_of(table, asked) == slots
        rows, found = table.find_rows(asked)
        assert rows is not None
        assert list(zip(rows, found, strict=True)) == [(row, slot) for row, slot in enumerate(slots) if slot >= 0]


@pytest.mark.usefixtures("always_sieved")
def test_keys_that_come_and_go_are_told() -> None:
    table = KeyTable([pl.Int64()])
    table.slots([pl.Series(range(10_000))])
    far = pl.Series([*range(20_000, 23_000), 5, 30_000])
    assert slots_of(table, [far]) == [-1] * 3_000 + [5, -1]
    assert table._sieve is not None
    table.slots([pl.Series([30_000])])
    assert slots_of(table, [far]) == [-1] * 3_000 + [5, 10_000]
    assert slots_of(table, [far]) == [-1] * 3_000 + [5, 10_000]
    table.release(np.array([5]))
    assert slots_of(table, [far]) == [-1] * 3_001 + [10_000]


def test_none_is_made_where_most_keys_are_there() -> None:
    table = KeyTable([pl.Int64()])
    keys = pl.Series(range(50_000))
    table.slots([keys])
    assert slots_of(table, [keys]) == list(range(50_000))
    assert table._sieve is None
