"""The loops of the key table stop with a code before an array is full. Run again with NUMBA_BOUNDSCHECK=1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from squill.engine.columns import read_only
from squill.engine.kernels import key_table as kernels

Array = npt.NDArray[Any]


class Table(NamedTuple):
    """The arrays of a small table of one-word keys."""

    entries: Array
    words: Array
    nulls: Array
    hashes: Array
    free: Array
    state: Array

    def insert(self, keys: list[int], homes: list[int], row: int = 0) -> tuple[list[int], int, int]:
        hashes = read_only(np.array(homes, dtype=np.uint64) << np.uint64(32))
        nulls = read_only(np.zeros(len(keys), dtype=np.uint8))
        out = np.full(len(keys), -9, dtype=np.int32)
        code, reached = kernels.look_up_word(read_only(np.array(keys)), nulls, hashes, row, False, True, *self, out)
        return out.tolist(), code, reached

    def find(self, keys: list[int], homes: list[int]) -> list[int]:
        hashes = read_only(np.array(homes, dtype=np.uint64) << np.uint64(32))
        nulls = read_only(np.zeros(len(keys), dtype=np.uint8))
        out = np.full(len(keys), -9, dtype=np.int32)
        code, reached = kernels.look_up_word(read_only(np.array(keys)), nulls, hashes, 0, False, False, *self, out)
        assert (code, reached) == (kernels.DONE, len(keys))
        return out.tolist()

    def release(self, *slots: int) -> tuple[int, int]:
        given = read_only(np.array(slots, dtype=np.int32))
        lengths = np.empty(0, dtype=np.int32)
        return kernels.release_slots(given, self.entries, self.hashes, lengths, self.free, self.state)


def small_table(places: int = 16, slots: int = 8) -> Table:
    return Table(
        np.full(places, -1),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots, dtype=np.uint8),
        np.zeros(slots, dtype=np.uint64),
        np.zeros(slots, dtype=np.int32),
        np.zeros(kernels.STATE_SIZE, dtype=np.int64),
    )


def test_a_half_full_table_asks_to_grow() -> None:
    out, code, row = small_table(places=4).insert([1, 2, 3], [0, 1, 2])
    assert (out[:2], code, row) == ([0, 1], kernels.GROW_TABLE, 2)


def test_full_slots_ask_to_grow() -> None:
    _, code, row = small_table(slots=2).insert([1, 2, 1, 3], [0, 1, 0, 2])
    assert (code, row) == (kernels.GROW_SLOTS, 3)


def test_known_keys_need_no_room() -> None:
    table = small_table(slots=2)
    table.insert([1, 2], [0, 1])
    assert table.insert([2, 1, 2], [1, 0, 1]) == ([1, 0, 1], kernels.DONE, 3)


def test_insertion_goes_on_from_the_row_reached() -> None:
    table = small_table()
    assert table.insert([1, 2, 3], [0, 1, 2], row=1) == ([-9, 0, 1], kernels.DONE, 3)


def test_a_run_wraps_around_the_end_of_the_table() -> None:
    table = small_table()
    keys, homes = [1, 2, 3, 4], [15, 15, 15, 15]
    assert table.insert(keys, homes)[0] == [0, 1, 2, 3]
    assert table.find(keys, homes) == [0, 1, 2, 3]
    assert table.entries[[15, 0, 1, 2]].tolist() == [(15 << 32) | slot for slot in range(4)]


@pytest.mark.parametrize("gone", range(6))
def test_releasing_any_key_of_a_run_leaves_the_others_reachable(gone: int) -> None:
    table = small_table()
    keys, homes = [1, 2, 3, 4, 5, 6], [14, 15, 14, 0, 15, 1]
    table.insert(keys, homes)
    assert table.release(gone) == (kernels.DONE, 1)
    assert table.find(keys, homes) == [slot if slot != gone else -1 for slot in range(6)]
    assert np.count_nonzero(table.entries != -1) == 5


def test_a_key_at_its_home_does_not_move_before_it() -> None:
    table = small_table()
    table.insert([1, 2], [3, 4])
    table.release(0)
    assert table.entries[[3, 4]].tolist() == [-1, (4 << 32) | 1]


def test_releasing_all_keys_empties_the_table() -> None:
    table = small_table()
    table.insert([1, 2, 3, 4], [5, 5, 6, 5])
    table.release(2, 0, 3, 1)
    assert (table.entries == -1).all()
    assert table.state[[kernels.LIVE, kernels.FREE]].tolist() == [0, 4]


@pytest.mark.parametrize("slot", [-1, 2, 2**31 - 1])
def test_releasing_what_was_never_handed_out_stops_at_its_row(slot: int) -> None:
    table = small_table()
    table.insert([1, 2], [0, 1])
    assert table.release(1, slot) == (kernels.BAD_SLOT, 1)


def test_keys_of_equal_tag_are_told_apart_by_value() -> None:
    table = small_table()
    assert table.insert([1, 2, 1, 2], [3, 3, 3, 3])[0] == [0, 1, 0, 1]


def test_growing_keeps_every_entry_reachable() -> None:
    table = small_table(places=16)
    keys, homes = [1, 2, 3, 4, 5], [15, 31, 15, 0, 16]
    table.insert(keys, homes)
    larger = np.full(32, -1)
    kernels.rebuild_table(table.entries, larger)
    assert table._replace(entries=larger).find(keys, homes) == [0, 1, 2, 3, 4]


def test_growing_moves_every_entry_of_a_table_of_many_blocks() -> None:
    rng = np.random.default_rng(7)
    hashes = rng.integers(0, 2**63, 900).astype(np.uint64) * np.uint64(2)
    entries, larger = np.full(2_048, -1), np.full(4_096, -1)
    kernels.fill_table(hashes, np.zeros(len(hashes), np.uint8), entries)
    before = np.sort(entries)
    kernels.rebuild_table(entries, larger)
    assert np.sort(larger)[-900:].tolist() == before[-900:].tolist()
    assert np.count_nonzero(larger != -1) == len(hashes)


def test_a_table_filled_from_hashes_leaves_out_free_slots() -> None:
    hashes = np.array([1, 1, 2], dtype=np.uint64) << np.uint64(32)
    entries = np.full(8, -1)
    kernels.fill_table(hashes, np.array([0, 1, 0], dtype=np.uint8), entries)
    assert sorted(entries[entries != -1].tolist()) == [1 << 32, (2 << 32) | 2]


def test_gathering_words_stops_at_a_bad_slot() -> None:
    words, nulls = np.arange(8).reshape(4, 2), np.array([0, 0b10, 0, 0], dtype=np.uint8)
    out, valid = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.uint8)
    slots = read_only(np.array([0, 1, 4], dtype=np.int32))
    assert kernels.gather_words(slots, words, nulls, 1, 4, out, valid) == 2
    assert (out.tolist(), valid.tolist()) == ([1, 3, 0], [1, 0, 0])


def test_byte_ranges_stop_at_a_slot_without_a_key() -> None:
    starts, lengths = np.array([0, 3]), np.array([3, -1], dtype=np.int32)
    out = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int32)
    slots = read_only(np.array([0, 1], dtype=np.int32))
    assert kernels.byte_ranges(slots, starts, lengths, 2, *out) == 1


def insert_bytes(rows: list[bytes], arena_size: int) -> tuple[int, int, Array]:
    offsets = read_only(np.cumsum([0, *map(len, rows)]))
    data = read_only(np.frombuffer(b"".join(rows), dtype=np.uint8))
    hashes = read_only(np.arange(len(rows), dtype=np.uint64) << np.uint64(32))
    arena = np.zeros(arena_size, dtype=np.uint8)
    table = small_table(places=64, slots=32)
    code, row = kernels.look_up_bytes(
        offsets, read_only(np.diff(offsets)), data, hashes, 0, True,
        table.entries, arena, np.zeros(32, dtype=np.int64), np.zeros(32, dtype=np.int32),
        table.hashes, table.free, table.state, np.zeros(len(rows), dtype=np.int32),
    )  # fmt: skip
    return code, row, arena


@pytest.mark.parametrize("size", [1, 4, 5, 8, 9, 15])
def test_a_full_arena_asks_to_grow_before_the_key_that_does_not_fit(size: int) -> None:
    code, row, arena = insert_bytes([b"abc", b"d", b"", b"efghijklmnop"], size)
    expected = 0 if size < 3 else 1 if size < 4 else 3
    assert (code, row) == (kernels.GROW_ARENA, expected)
    assert bytes(arena) == b"abcd"[: [0, 3, 3, 4][expected]].ljust(size, b"\0")


def test_bytes_that_just_fit_fill_the_arena() -> None:
    code, _, arena = insert_bytes([b"abc", b"", b"defghijklmnop"], 16)
    assert code == kernels.DONE
    assert bytes(arena) == b"abcdefghijklmnop"


def test_packing_keeps_the_bytes_of_living_slots() -> None:
    arena = np.frombuffer(b"aaaBBccc", dtype=np.uint8).copy()
    starts, lengths = np.array([5, 3, 0]), np.array([3, -1, 3], dtype=np.int32)
    target = np.zeros(6, dtype=np.uint8)
    assert kernels.pack_bytes(arena, starts, lengths, target) == 6
    assert bytes(target) == b"cccaaa"
    assert starts[[0, 2]].tolist() == [0, 3]


def seen(views: Array, buffers: list[Array]) -> list[bytes]:
    """Read Arrow string views."""
    rows = []
    for view in views.view(np.uint8).reshape(-1, 16):
        length, _, buffer, offset = view.view(np.int32).tolist()
        if length <= 12:
            rows.append(bytes(view[4 : 4 + length]))
        else:
            assert bytes(view[4:8]) == bytes(buffers[buffer][offset : offset + 4])
            rows.append(bytes(buffers[buffer][offset : offset + length]))
    return rows


STRINGS = [b"", b"abc", b"abcd", b"abcdefghijkl", b"abcdefghijklm", b"x" * 16, b"yz" * 8, b"end of arena.."]


def test_views_point_into_overlapping_buffers_of_the_arena() -> None:
    arena = np.frombuffer(b"".join(STRINGS), dtype=np.uint8).copy()
    lengths = np.array([len(string) for string in STRINGS], dtype=np.int32)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    views = np.zeros(4 * len(STRINGS), dtype=np.int32)
    kernels.make_views(arena, starts, lengths, 4, views, views.view(np.uint8))
    buffers = [arena[start : start + 31] for start in range(0, len(arena), 16)]
    assert seen(views, buffers) == STRINGS


def test_encoded_columns_are_read_back_in_order() -> None:
    valid = read_only(np.array([1, 0, 1], dtype=np.uint8))
    words, limbs = read_only(np.array([1, 1, -1])), read_only(np.array([3, 2, 3, 2, -3, -2]))
    places, sizes = read_only(np.array([0, 2, 2])), read_only(np.array([2, 0, 3]))
    data = read_only(np.frombuffer(b"abcde", dtype=np.uint8))
    nowhere = read_only(np.empty(0, dtype=np.int64))
    encoded = np.array([33, 3, 34])
    begins = np.cumsum(encoded) - encoded
    target, cursor = np.zeros(encoded.sum(), dtype=np.uint8), begins.copy()
    kernels.put_column(nowhere, nowhere, words.view(np.uint8), valid, 8, target, cursor)
    kernels.put_column(nowhere, nowhere, limbs.view(np.uint8), valid, 16, target, cursor)
    kernels.put_column(places, sizes, data, valid, 0, target, cursor)
    assert cursor.tolist() == np.cumsum(encoded).tolist()
    cursor = begins.copy()
    starts, lengths = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32)
    for width, expected in ((8, [1, 0, -1]), (16, [3, 2, 0, 0, -3, -2])):
        found = np.zeros(3 * width // 8, dtype=np.int64)
        kernels.take_column(target, cursor, width, found.view(np.uint8), starts, lengths)
        assert (found.tolist(), lengths.tolist()) == (expected, [width, kernels.NULL, width])
    kernels.take_column(target, cursor, 0, np.zeros(0, dtype=np.uint8), starts, lengths)
    assert lengths.tolist() == [2, kernels.NULL, 3]
    assert bytes(target[starts[0] : starts[0] + 2]) == b"ab"
    assert bytes(target[starts[2] : starts[2] + 3]) == b"cde"
