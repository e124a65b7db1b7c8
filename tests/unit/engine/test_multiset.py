"""Ordered multisets by slot: against sorted lists, under churn, in both orders, saved and loaded."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from squill.engine.kernels import multiset as kernels
from squill.engine.kernels import multiset_blocks as layout
from squill.engine.kernels import multiset_tree as tree
from squill.engine.multiset import Multisets, float_codes, float_values, uint64_codes, uint64_values
from squill.errors import InternalError, StateFormatError


class Model:
    """Sorted lists, one per slot, fed the same operations as a family of multisets."""

    def __init__(self, family: Multisets, key: Callable[[int], Any] = int) -> None:
        self.family = family
        self.key = key
        self.lists: dict[int, list[int]] = {}

    def apply(self, slots: list[int], signs: list[int], codes: list[int]) -> None:
        self.family.apply(slots, signs, codes)
        for slot, sign, code in zip(slots, signs, codes, strict=True):
            held = self.lists.setdefault(slot, [])
            at = bisect.bisect_left(held, self.key(code), key=self.key)
            if sign > 0:
                held.insert(at, code)
            else:
                assert held.pop(at) == code

    def check(self) -> None:
        slots = sorted(self.lists)
        offsets, codes = self.family.read(slots)
        assert np.diff(offsets).tolist() == [len(self.lists[slot]) for slot in slots]
        assert codes.tolist() == [code for slot in slots for code in self.lists[slot]]
        check_structure(self.family)


def blocks_of_slot(arena: NDArray[np.int64], at: int, *, exact: bool) -> Iterator[tuple[int, int]]:
    """Yield (address, size) of each block below a slot, checking counts, order and fill on the way.

    The code that a node has of a child is that child's first, with `exact`, or not above it.
    """
    base, tag = int(arena[at]), int(arena[at + 1])
    room, n = tag & layout.ROOM, tag >> 16
    if room < layout.TREE:
        assert (n == 0) == (room == 0)
        assert n <= room
        if room:
            yield base, room
        return
    height = room - layout.TREE

    def walk(node: int, level: int, first: int, count: int) -> Iterator[tuple[int, int]]:
        if level == 0:
            counts = arena[node + tree.COUNTS : node + tree.LEAF].view(np.int32)
            entries = int(counts[-1])
            assert 0 < entries <= tree.ENTRIES
            assert counts[:entries].sum() == count > 0
            assert counts[:entries].min() >= (1 if exact else 0)
            codes = arena[node : node + entries]
            if exact:
                assert codes[0] == first
                assert len(set(codes.tolist())) == entries
            else:
                assert codes[0] >= first
                assert (codes[1:] > codes[:-1]).all()
            yield node, tree.LEAF
            return
        children, words = int(arena[node]), int(arena[node + 1])
        assert (1 if level == height == 1 else 2) <= children < words // 2
        assert words == tree.NODE or height == 1
        firsts = arena[node + tree.FIRSTS :][:children]
        links = arena[node + words // 2 + 1 :][:children]
        assert firsts[0] == first
        assert exact or (firsts[1:] > firsts[:-1]).all()
        assert (links & tree.MOST_CODES).sum() == count
        yield node, words
        for child_first, link in zip(firsts.tolist(), links.tolist(), strict=True):
            yield from walk(link >> tree.LINK & ~7, level - 1, child_first, link & tree.MOST_CODES)

    yield from walk(base, height, int(arena[base + tree.FIRSTS]), n)


def check_structure(family: Multisets) -> None:
    """Every word is in exactly one place: the slots, or an aligned block, alive or on the free list of its size."""
    arena = family.state.arena
    words_before = arena.ctypes.data // 8
    table = int(arena[layout.SLOTS])
    blocks: list[tuple[int, int]] = []
    for slot in range(family.slot_capacity):
        blocks.extend(blocks_of_slot(arena, table + 2 * slot, exact=family.state.text is not None))
    for kind in range(layout.LARGEST_BLOCK // 4 + 1):
        alive = sum(words == 4 * kind for _, words in blocks)
        assert alive == arena[layout.BLOCKS + kind]
    for kind in range(layout.LARGEST_BLOCK // 4 + 1):
        block = int(arena[layout.FREE + kind])
        while block:
            blocks.append((block, 4 * kind))
            block = int(arena[block])
    blocks.append((table, 2 * family.slot_capacity))
    at = layout.HEADER
    for start, words in sorted(blocks):
        assert start == at
        assert (words_before + start) % min(words & -words, layout.LINE) == 0
        at += words
    assert at == arena[layout.TOP]


def zeros(n: int) -> NDArray[np.int32]:
    return np.zeros(n, np.int32)


def test_a_slot_keeps_repeated_codes() -> None:
    family = Multisets()
    family.apply([3, 3, 3], [1, 1, 1], [5, 5, 4])
    family.apply([3], [-1], [5])
    assert family.codes(3).tolist() == [4, 5]


def test_extreme_codes_are_ordered() -> None:
    family = Multisets()
    family.apply([0, 0, 0], [1, 1, 1], [2**63 - 1, -(2**63), 0])
    assert family.codes(0).tolist() == [-(2**63), 0, 2**63 - 1]


@pytest.mark.parametrize("held", [0, 3, 16, 40, 64, 65, 256, 257, 1000])
def test_removing_an_absent_code_is_an_error_and_changes_nothing(held: int) -> None:
    family = Multisets()
    family.apply(zeros(held), np.ones(held), 2 * np.arange(held))
    for code in (-1, 2 * (held // 2) + 1, 2 * held):
        with pytest.raises(InternalError, match="row 0 removes a code that slot 0 does not hold"):
            family.apply([0], [-1], [code])
    assert family.codes(0).tolist() == [2 * k for k in range(held)]
    check_structure(family)


def test_an_empty_slot_holds_no_block() -> None:
    family = Multisets()
    codes = np.random.default_rng(0).permutation(5000)
    family.apply(zeros(5000), np.ones(5000), codes)
    family.apply(zeros(5000), -np.ones(5000), codes[::-1])
    check_structure(family)
    assert not family.state.arena[layout.BLOCKS : layout.PATHS].any()


@pytest.mark.parametrize("pattern", ["ascending", "descending", "random", "equal", "few"])
@pytest.mark.parametrize("drain", ["first in first out", "last in first out", "smallest first"])
def test_groups_grow_into_trees_and_shrink_again(pattern: str, drain: str) -> None:
    n = 3 * tree.ENTRIES * tree.FANOUT // 2
    rng = np.random.default_rng(1)
    codes = {
        "ascending": np.arange(n),
        "descending": np.arange(n)[::-1],
        "random": rng.integers(-(2**60), 2**60, n),
        "equal": np.full(n, 7),
        "few": rng.integers(0, 5, n),
    }[pattern]
    family = Multisets()
    family.apply(zeros(n), np.ones(n), codes)
    assert family.codes(0).tolist() == sorted(codes.tolist())
    height = {"equal": 1, "few": 1}.get(pattern, 2)
    assert family.state.arena[family.state.arena[layout.SLOTS] + 1] & layout.ROOM == layout.TREE + height
    check_structure(family)
    order = {"first in first out": codes, "last in first out": codes[::-1]}.get(drain, np.sort(codes))
    for part in np.array_split(np.arange(n), 7):
        family.apply(zeros(len(part)), -np.ones(len(part)), order[part])
        assert family.codes(0).tolist() == sorted(order[part[-1] + 1 :].tolist())
        check_structure(family)


def test_ascending_codes_fill_their_leaves() -> None:
    family = Multisets()
    family.apply(zeros(100_000), np.ones(100_000), np.arange(100_000))
    assert family.used_bytes < 8 * tree.LEAF * 100_000 / tree.ENTRIES * 1.2


def test_equal_codes_are_counted_not_repeated() -> None:
    family = Multisets()
    family.apply(zeros(100_000), np.ones(100_000), np.arange(100_000) % 500)
    assert family.used_bytes < 100_000


def test_memory_follows_what_is_alive() -> None:
    family = Multisets()
    rng = np.random.default_rng(2)
    slots = rng.permutation(np.repeat(np.arange(1000), 300)).astype(np.int32)
    codes = rng.integers(0, 1000, slots.size)
    family.ensure_slots(1000)
    family.apply(slots, np.ones(slots.size), codes)
    full = family.used_bytes
    family.apply(slots[3000:], -np.ones(slots.size - 3000), codes[3000:])
    family.reserve(1)
    assert full > 2_000_000
    assert family.used_bytes < full / 10
    assert family.size(int(slots[0])) > 0
    check_structure(family)


def test_memory_is_bounded_under_churn() -> None:
    family = Multisets()
    rng = np.random.default_rng(3)
    held: list[tuple[NDArray[np.int32], NDArray[np.int64]]] = []
    family.ensure_slots(5000)
    for turn in range(60):
        spread = 5000 if turn % 20 < 10 else 50
        slots = rng.integers(0, spread, 2000).astype(np.int32)
        codes = rng.integers(0, 2**40, 2000)
        family.apply(slots, np.ones(2000), codes)
        held.append((slots, codes))
        if len(held) > 10:
            old_slots, old_codes = held.pop(0)
            family.apply(old_slots, -np.ones(2000), old_codes)
    assert family.used_bytes < 8 * (2 * 5000 + 20_000 * 4 + (1 << 16))
    check_structure(family)


@pytest.mark.parametrize("held", [0, 1, 64, 65, 5000, 20_000])
def test_clear_frees_all_blocks(held: int) -> None:
    family = Multisets()
    family.apply(zeros(held), np.ones(held), np.random.default_rng(4).permutation(held))
    family.apply([1], [1], [9])
    kernels.clear(family.state, 0)
    assert (family.size(0), family.size(1)) == (0, 1)
    check_structure(family)


@pytest.mark.parametrize("operations", [1, 100, 3000])
def test_reserve_covers_groups_that_all_grow_at_once(operations: int) -> None:
    family = Multisets()
    sizes = [4, 8, 16, 32, 64, 128, 256, 20 * 64, tree.ENTRIES * tree.FANOUT]
    slots = np.repeat(np.arange(3000, dtype=np.int32), [sizes[k % 7] for k in range(3000)])
    family.ensure_slots(3010)
    family.apply(slots, np.ones(slots.size), np.arange(slots.size))
    for slot, size in enumerate(sizes, start=3000):
        family.apply(np.full(size, slot), np.ones(size), np.arange(size))
    need = family._worst_case(operations)
    before = int(family.state.arena[layout.TOP])
    family.apply(np.arange(3009 - operations, 3009), np.ones(operations), np.arange(operations))
    assert int(family.state.arena[layout.TOP]) - before <= need


@pytest.mark.parametrize("span", [40, 2**60])
@pytest.mark.parametrize("groups", [1, 30, 900])
def test_operations_never_take_more_than_was_promised(span: int, groups: int) -> None:
    """Groups wander between empty runs and trees; each short call may meet many that are just full or just thin."""
    rng = np.random.default_rng(groups + span % 7)
    family = Multisets()
    family.ensure_slots(groups)
    held: list[list[int]] = [[] for _ in range(groups)]
    for turn in range(120):
        grows = 0.8 if turn // 20 % 2 == 0 else 0.25
        slots, signs, codes = [], [], []
        for slot in rng.integers(0, groups, int(rng.integers(1, 1200))).tolist():
            mine = held[slot]
            inserts = not mine or rng.random() < grows
            if inserts:
                mine.append(int(rng.integers(0, span)))
                code = mine[-1]
            else:
                k = int(rng.integers(len(mine)))
                mine[k], mine[-1] = mine[-1], mine[k]
                code = mine.pop()
            slots.append(slot)
            signs.append(1 if inserts else -1)
            codes.append(code)
        family.reserve(len(slots))
        promised = int(family.state.arena[layout.TOP]) + family._worst_case(len(slots))
        assert promised <= family.state.arena.size
        family.apply(slots, signs, codes)
        assert family.state.arena[layout.TOP] <= promised
        if turn % 20 == 19:
            check_structure(family)
            for slot in range(0, groups, 7):
                assert family.codes(slot).tolist() == sorted(held[slot])


def test_more_codes_than_can_be_counted_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squill.engine.multiset.MOST_CODES", 1000)
    family = Multisets()
    family.apply(zeros(600), np.ones(600), np.arange(600))
    family.apply(np.ones(300), np.ones(300), np.arange(300))
    family.apply(np.ones(300), np.ones(300), np.arange(300))
    with pytest.raises(InternalError, match="more than 1000 under one key cannot be held"):
        family.apply(zeros(600), np.ones(600), np.arange(600))


def test_more_than_can_be_addressed_is_an_error() -> None:
    with pytest.raises(InternalError, match=r"ordered values would take .* GiB; 64 GiB can be addressed"):
        Multisets().reserve(2**31 - 1)


def test_new_slots_keep_the_old_ones() -> None:
    family = Multisets()
    model = Model(family)
    rng = np.random.default_rng(5)
    for capacity in (1, 20, 300, 301, 5000):
        family.ensure_slots(capacity)
        slots = rng.integers(0, capacity, 500).tolist()
        model.apply(slots, [1] * 500, rng.integers(0, 50, 500).tolist())
        model.check()
    assert family.slot_capacity >= 5000


def test_loading_something_else_is_an_error() -> None:
    with pytest.raises(StateFormatError, match="no saved family of multisets"):
        Multisets().load({"arena": np.zeros(3, np.int64)})
    with pytest.raises(StateFormatError, match="no saved family of multisets"):
        Multisets().load({})


def test_bytes_for_a_numeric_family_are_an_error() -> None:
    with pytest.raises(InternalError, match="orders by number"):
        Multisets().set_bytes(np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))


def reload(family: Multisets, *, byte_order: bool = False) -> Multisets:
    other = Multisets(byte_order=byte_order)
    if family.state.text is not None:
        other.set_bytes(*family.state.text)
    other.load(family.save())
    assert np.array_equal(other.save()["arena"], family.save()["arena"])
    return other


# Each step: how many to insert, how many of the oldest to remove, the range of codes, save and load?
STEPS = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 900), st.sampled_from([1, 20, 400, 2**62]), st.booleans()),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_any_churn_agrees_with_sorted_lists(steps: list[tuple[int, int, int, bool]], slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = Model(Multisets())
    model.family.ensure_slots(slots)
    queue: list[tuple[int, int]] = []
    for inserts, removes, span, save in steps:
        chosen = (slots * rng.random(inserts) ** 4).astype(int).tolist()
        fresh = list(zip(chosen, rng.integers(-span, span, inserts).tolist(), strict=True))
        queue.extend(fresh)
        gone, queue = queue[:removes], queue[removes:]
        rows = [(s, 1, c) for s, c in fresh] + [(s, -1, c) for s, c in gone]
        model.apply([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
        if save:
            model.family = reload(model.family)
        model.check()


def byte_strings(rng: np.random.Generator, n: int) -> list[bytes]:
    """Distinct strings with long shared prefixes, prefixes of each other, zero bytes and high bytes."""
    strings = {b""}
    while len(strings) < n:
        letters = rng.choice([0, 1, 97, 98, 127, 128, 255], rng.integers(0, 9))
        strings.add(b"same" * int(rng.integers(0, 3)) + bytes(letters.astype(np.uint8)))
    ordered = sorted(strings)
    return [ordered[k] for k in rng.permutation(len(ordered))]


def set_strings(family: Multisets, strings: list[bytes]) -> None:
    lengths = np.array([len(s) for s in strings], np.int64)
    starts = np.cumsum(lengths) - lengths
    family.set_bytes(np.frombuffer(b"".join(strings), np.uint8).copy(), starts, lengths)


@settings(max_examples=30, deadline=None)
@given(STEPS, st.integers(0, 2**32 - 1))
def test_byte_order_agrees_with_sorted_strings(steps: list[tuple[int, int, int, bool]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    strings = byte_strings(rng, 700)
    model = Model(Multisets(byte_order=True), key=strings.__getitem__)
    set_strings(model.family, strings)
    queue: list[int] = []
    for inserts, removes, _, save in steps:
        fresh = rng.integers(0, len(strings), inserts).tolist()
        queue.extend(fresh)
        gone, queue = queue[:removes], queue[removes:]
        model.apply([0] * (len(fresh) + len(gone)), [1] * len(fresh) + [-1] * len(gone), fresh + gone)
        if save:
            model.family = reload(model.family, byte_order=True)
        model.check()


def test_strings_may_be_replaced_by_longer_arrays() -> None:
    family = Multisets(byte_order=True)
    set_strings(family, [b"m"])
    family.apply([0], [1], [0])
    set_strings(family, [b"m", b"z", b"a"])
    family.apply([0, 0], [1, 1], [1, 2])
    assert family.codes(0).tolist() == [2, 0, 1]


def test_an_id_that_was_given_back_may_become_any_string() -> None:
    family = Multisets(byte_order=True)
    strings = [b"%04d" % k for k in range(300)] + [b"zzzz"]
    set_strings(family, strings)
    family.apply(zeros(300), np.ones(300), np.arange(300))
    family.apply([0, 0], [1, -1], [300, 300])
    set_strings(family, [*strings[:300], b""])
    family.apply([0], [1], [300])
    assert family.codes(0).tolist() == [300, *range(300)]
    check_structure(family)


FLOATS = st.lists(st.floats(allow_nan=False), min_size=2, max_size=2)


@settings(deadline=None)  # the first call compiles
@given(FLOATS)
def test_float_codes_keep_the_order(pair: list[float]) -> None:
    a, b = float_codes(np.array(pair)).tolist()
    assert (a < b) == (pair[0] < pair[1])
    assert (a == b) == (pair[0] == pair[1])
    assert float_values(np.array([a, b])).tolist() == pair


def test_every_nan_has_the_same_and_largest_code() -> None:
    bits = np.array([0x7FF8000000000000, -0x8000000000000, 0x7FF0000000000001, 0x7FF0000000000000], np.int64)
    codes = float_codes(bits.view(np.float64))
    assert codes[0] == codes[1] == codes[2] > codes[3]


def test_uint64_codes_keep_the_order() -> None:
    values = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    codes = uint64_codes(values)
    assert np.all(np.diff(codes.astype(object)) > 0)
    assert np.array_equal(uint64_values(codes), values)
