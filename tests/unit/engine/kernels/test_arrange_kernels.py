from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.kernels.arrange import CELL_SIZE, GROUP_SIZE, arrange

SLOTS = 5
# Of each instant the deltas (slot, whether the value is there) and more slots that have a cell; at the end the
# deltas of the instant that stays open.
deltas = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.booleans()), max_size=6)
histories = st.tuples(
    st.lists(st.tuples(deltas, st.sets(st.integers(0, SLOTS - 1), max_size=2)), max_size=6),
    deltas,
)


def arranged(history: Any, *, across_instants: bool) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return (slots, changes, ends, order, slots of cells); the code of a change is the number of its delta."""
    instants, rest = history
    rows = [delta for some, _ in instants for delta in some] + rest
    cells = [sorted({slot for slot, _ in some} | more) for some, more in instants]
    n, c_slot = len(rows), np.array([slot for some in cells for slot in some], np.int32)
    pairs, cells_out = np.empty(2 * n, np.int64), np.empty(CELL_SIZE * len(c_slot), np.int32)
    d_slot, valid = np.array([slot for slot, _ in rows], np.int32), np.array([there for _, there in rows], np.uint8)
    count = arrange(
        d_slot, np.where(np.arange(n) % 2, 1, -1).astype(np.int8), np.arange(n), n,
        np.cumsum([len(some) for some, _ in instants], dtype=np.int64),
        np.cumsum([len(some) for some in cells], dtype=np.int64), len(instants),
        c_slot, np.zeros(len(c_slot), np.int64), np.arange(n), valid, across_instants,
        np.full(SLOTS, 1, np.int32), np.full((n + len(c_slot)) * GROUP_SIZE, 3, np.int32),
        np.empty(n, np.int32), np.empty(len(c_slot), np.int32), pairs, cells_out,
    )  # fmt: skip
    slots, signs, changes = pairs[0::2] >> 1, np.where(pairs[0::2] & 1, 1, -1), pairs[1::2]
    order, ends, slots_of_cells = (cells_out[k::CELL_SIZE] for k in range(3))
    assert slots_of_cells.tolist() == c_slot[order].tolist()
    assert signs[:count].tolist() == [1 if change % 2 else -1 for change in changes[:count]]
    assert sorted(changes[:count].tolist()) == np.flatnonzero(valid).tolist()
    assert slots[:count].tolist() == d_slot[changes[:count]].tolist()
    return slots[:count].tolist(), changes[:count].tolist(), ends.tolist(), order.tolist(), c_slot.tolist()


@pytest.mark.parametrize("across_instants", [False, True])
@settings(max_examples=200, deadline=None, derandomize=True)
@given(history=histories)
def test_each_cell_sees_the_changes_of_its_slot_until_its_instant(across_instants: bool, history: Any) -> None:
    slots, changes, ends, order, c_slot = arranged(history, across_instants=across_instants)
    instant_of = [i for i, (some, more) in enumerate(history[0]) for _ in {slot for slot, _ in some} | more]
    last_delta = np.cumsum([len(some) for some, _ in history[0]])
    rows = [delta for some, _ in history[0] for delta in some]
    assert sorted(order) == list(range(len(c_slot)))
    assert ends == sorted(ends)
    for cell, end in zip(order, ends, strict=True):
        seen = [change for slot, change in zip(slots[:end], changes, strict=False) if slot == c_slot[cell]]
        before = enumerate(rows[: last_delta[instant_of[cell]]])
        assert seen == [row for row, (slot, there) in before if slot == c_slot[cell] and there]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(history=histories)
def test_across_instants_a_slot_comes_once(history: Any) -> None:
    slots, *_ = arranged(history, across_instants=True)
    turns = [slot for k, slot in enumerate(slots) if k == 0 or slots[k - 1] != slot]
    assert len(turns) == len(set(turns))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(history=histories)
def test_inside_instants_cells_stay_in_order(history: Any) -> None:
    _, _, _, order, c_slot = arranged(history, across_instants=False)
    assert order == list(range(len(c_slot)))
