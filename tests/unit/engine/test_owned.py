"""Arrays that change hands: once, and only when they were offered."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from squill.engine import owned as hands
from squill.engine.owned import offer, owned, withdraw
from squill.engine.state.folder import StoredState
from squill.engine.state.journal import Journal


@pytest.fixture(autouse=True)
def nothing_is_left_over() -> Iterator[None]:
    withdraw()
    yield
    withdraw()


def test_an_array_that_was_offered_is_had_once() -> None:
    array = np.arange(8)
    offer(array)
    part = array[2:].reshape(2, 3)
    assert owned(part) is part
    again = owned(part)
    assert not np.shares_memory(again, array)
    assert np.array_equal(again, part)


def test_what_was_withdrawn_is_copied() -> None:
    array = np.arange(8)
    offer(array)
    withdraw()
    assert not np.shares_memory(owned(array), array)


def test_what_is_gone_is_not_kept() -> None:
    offer(np.arange(8))
    gc.collect()
    assert len(hands._offered) == 0


def test_what_was_read_is_had_without_a_copy_until_the_query_goes_on(tmp_path: Path) -> None:
    Journal({}).checkpoint(tmp_path, {"a": np.arange(1000), "b": np.arange(1000).reshape(10, 100)})
    stored = StoredState(tmp_path)
    read = stored.read()
    taken = owned(read["a"])
    assert taken is read["a"]
    assert not np.shares_memory(owned(taken), taken)
    stored.go_on(Journal({}))
    assert owned(read["b"]) is not read["b"]
    assert np.array_equal(owned(read["b"]), np.arange(1000).reshape(10, 100))
