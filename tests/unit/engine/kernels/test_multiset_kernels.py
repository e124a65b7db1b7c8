"""The operations of multisets as fold kernels call them; the suite runs again with bounds checked."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from numpy.typing import NDArray

from squill.engine.kernels.multiset import (
    clear,
    copy_range,
    insert,
    kth,
    largest,
    prefetch,
    remove,
    size,
    smallest,
)
from squill.engine.kernels.multiset_blocks import MultisetState
from squill.engine.multiset import Multisets
from tests.unit.engine.kernels.helpers import called_from_python

Ints = NDArray[np.int64]


@called_from_python
def fold(state: MultisetState, changes: Ints, cleared: NDArray[np.bool_], out: Ints) -> int:
    """Apply changes; after each write size, smallest, largest and the lower median of the slot."""
    for row in range(cleared.size):
        prefetch(state, changes, row)
        slot, code = changes[2 * row] >> 1, changes[2 * row + 1]
        if cleared[row]:
            clear(state, slot)
        elif changes[2 * row] & 1:
            insert(state, slot, code, row)
        elif not remove(state, slot, code, row):
            return row
        n = size(state, slot)
        out[row, 0] = n
        if n > 0:
            out[row, 1] = smallest(state, slot)
            out[row, 2] = largest(state, slot)
            out[row, 3] = kth(state, slot, (n - 1) >> 1)
    return -1


@called_from_python
def copies(state: MultisetState, slot: int, ks: Ints, ns: Ints, out: Ints) -> None:
    for row in range(ks.size):
        out[row, 0] = copy_range(state, slot, ks[row], ns[row], out[row, 1:])


def run_fold(family: Multisets, slots: list[int], signs: list[int], codes: list[int]) -> list[list[int]]:
    out = np.full((len(slots), 4), -1, np.int64)
    family.reserve(len(slots))
    changes = np.array([(slot << 1 | (sign > 0), code) for slot, sign, code in zip(slots, signs, codes, strict=True)])
    assert fold(family.state, changes.ravel(), np.array(signs) == 0, out) == -1
    return out.tolist()


def summary(held: list[int]) -> list[int]:
    if not held:
        return [0, -1, -1, -1]
    return [len(held), held[0], held[-1], held[(len(held) - 1) // 2]]


@pytest.mark.parametrize("span", [2, 50, 2**62])
@pytest.mark.parametrize("group", [10, 70, 300, 12_000])
def test_a_fold_sees_each_group_after_each_change(span: int, group: int) -> None:
    rng = np.random.default_rng(span % 1000 + group)
    family = Multisets()
    lists: list[list[int]] = [[], [], []]
    slots, signs, codes, wanted = [], [], [], []
    for step in range(3 * group):
        slot = int(rng.choice(3, p=[0.8, 0.15, 0.05]))
        held = lists[slot]
        grows = not held or rng.random() < (0.75 if step % (2 * group) < group else 0.3)
        code = int(rng.integers(-span, span)) if grows else held[int(rng.integers(len(held)))]
        if grows:
            held.insert(bisect.bisect(held, code), code)
        else:
            held.pop(bisect.bisect_left(held, code))
        slots.append(slot)
        signs.append(1 if grows else -1)
        codes.append(code)
        wanted.append(summary(held))
    assert run_fold(family, slots, signs, codes) == wanted
    assert [family.codes(slot).tolist() for slot in range(3)] == lists


@pytest.mark.parametrize("group", [1, 64, 65, 30_000])
def test_a_cleared_slot_starts_again(group: int) -> None:
    family = Multisets()
    rows = [*range(group), 0, 7, 5]
    signs = [1] * group + [0, 1, 1]
    found = run_fold(family, [0] * len(rows), signs, rows)
    assert found[-3:] == [summary([]), summary([7]), summary([5, 7])]


@pytest.mark.parametrize("group", [0, 5, 64, 65, 1000, 30_000])
def test_copy_range_takes_what_there_is(group: int) -> None:
    rng = np.random.default_rng(group)
    family = Multisets()
    family.apply(np.zeros(group), np.ones(group), rng.permutation(group))
    ks = np.concatenate([[0, 0, group, group + 5, max(group - 3, 0)], rng.integers(0, group + 1, 30)])
    ns = np.concatenate([[0, 200, 10, 10, 200], rng.integers(0, 200, 30)])
    out = np.full((ks.size, 201), -1, np.int64)
    copies(family.state, 0, ks, ns, out)
    for k, n, row in zip(ks.tolist(), ns.tolist(), out.tolist(), strict=True):
        wanted = list(range(k, min(k + n, group)))
        assert row[0] == len(wanted)
        assert row[1:] == wanted + [-1] * (200 - len(wanted))


def test_any_position_of_a_tree_can_be_read() -> None:
    family = Multisets()
    codes = np.random.default_rng(0).permutation(40_000)
    family.apply(np.zeros(40_000), np.ones(40_000), codes)
    assert all(kth(family.state, 0, k) == k for k in range(0, 40_000, 37))
