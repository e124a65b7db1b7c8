"""Key tables give equal keys equal slots, take slots back, and stay small."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.hashing import hash_columns
from squill.engine.key_table import KeyTable, supports

WORD_TYPES: list[pl.DataType] = [
    pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64(),
    pl.Float16(), pl.Float32(), pl.Float64(), pl.Date(), pl.Time(), pl.Datetime("us", "UTC"),
    pl.Duration("ns"),
]  # fmt: skip
BYTE_TYPES: list[pl.DataType] = [pl.String(), pl.Binary(), pl.Categorical(), pl.Decimal(20, 2)]


def column(dtype: pl.DataType, numbers: Sequence[int | None]) -> pl.Series:
    series = pl.Series("k", numbers, dtype=pl.Int64)
    if isinstance(dtype, (pl.Binary, pl.Categorical)):
        series = series.cast(pl.String)
    return series.cast(dtype)


def slots_of(table: KeyTable, *values: Sequence[Any]) -> list[int]:
    columns = [pl.Series(v, dtype=dtype) for v, dtype in zip(values, table.dtypes, strict=True)]
    return [int(slot) for slot in table.slots(columns)]


def keys_of(table: KeyTable, slots: Sequence[int]) -> list[tuple[Any, ...]]:
    columns = table.gather(np.array(slots, dtype=np.int32), [f"k{j}" for j in range(len(table.dtypes))])
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("dtype", [*WORD_TYPES, *BYTE_TYPES], ids=str)
def test_equal_keys_get_equal_slots_in_order_of_appearance(dtype: pl.DataType) -> None:
    table = KeyTable([dtype])
    assert table.slots([column(dtype, [7, 3, 7, None, 5, 3, None])]).tolist() == [0, 1, 0, 2, 3, 1, 2]
    assert (table.live, table.capacity) == (4, 4)


@pytest.mark.parametrize("dtype", [*WORD_TYPES, *BYTE_TYPES], ids=str)
def test_keys_come_back_in_their_type(dtype: pl.DataType) -> None:
    keys = column(dtype, [7, 3, None, 100, 0])
    table = KeyTable([dtype])
    back = table.gather(table.slots([keys]), ["k"])[0]
    assert back.dtype == dtype
    assert back.equals(keys, null_equal=True)
    assert back.name == "k"


@pytest.mark.parametrize("second", [*WORD_TYPES, *BYTE_TYPES], ids=str)
@pytest.mark.parametrize("first", [pl.Int64(), pl.String()], ids=str)
def test_keys_of_two_columns_come_back(first: pl.DataType, second: pl.DataType) -> None:
    columns = [column(first, [1, 1, None, None, 2, 1]), column(second, [1, None, 1, None, 1, 1])]
    table = KeyTable([first, second])
    slots = table.slots(columns)
    assert slots.tolist() == [0, 1, 2, 3, 4, 0]
    for given_column, back in zip(columns, table.gather(slots, ["k", "k"]), strict=True):
        assert back.equals(given_column, null_equal=True)


def test_booleans_are_keys() -> None:
    table = KeyTable([pl.Boolean()])
    assert slots_of(table, [True, False, None, True]) == [0, 1, 2, 0]
    assert keys_of(table, [0, 1, 2]) == [(True,), (False,), (None,)]


def test_enums_are_keys() -> None:
    table = KeyTable([pl.Enum(["a", "b"])])
    assert slots_of(table, ["b", "a", "b"]) == [0, 1, 0]
    assert keys_of(table, [1, 0]) == [("a",), ("b",)]


def test_a_column_of_type_null_is_one_key() -> None:
    table = KeyTable([pl.Null()])
    assert slots_of(table, [None, None]) == [0, 0]
    assert keys_of(table, [0]) == [(None,)]


def test_nan_equals_nan() -> None:
    table = KeyTable([pl.Float64()])
    assert slots_of(table, [math.nan, 1.0, -math.nan]) == [0, 1, 0]
    assert math.isnan(keys_of(table, [0])[0][0])


def test_negative_zero_is_zero_and_comes_back_as_zero() -> None:
    table = KeyTable([pl.Float64()])
    assert slots_of(table, [-0.0, 0.0]) == [0, 0]
    assert math.copysign(1, keys_of(table, [0])[0][0]) == 1


def test_null_differs_from_zero_and_from_the_empty_string() -> None:
    assert slots_of(KeyTable([pl.Int64()]), [0, None, 0]) == [0, 1, 0]
    assert slots_of(KeyTable([pl.String()]), ["", None, ""]) == [0, 1, 0]
    assert slots_of(KeyTable([pl.String()]), [None, "", None]) == [0, 1, 0]


def test_a_null_after_many_batches_without_nulls_is_a_new_key() -> None:
    table = KeyTable([pl.Int64()])
    assert slots_of(table, [0, 1]) == [0, 1]
    assert slots_of(table, [None, 0]) == [2, 0]
    assert slots_of(table, [0, 1]) == [0, 1]


def test_strings_with_zero_bytes_differ() -> None:
    assert slots_of(KeyTable([pl.String()]), ["a", "a\0", "a\0\0", "\0a", "a"]) == [0, 1, 2, 3, 0]


def test_neighbouring_columns_do_not_run_together() -> None:
    table = KeyTable([pl.String(), pl.String()])
    assert slots_of(table, ["ab", "a", "", "abc"], ["c", "bc", "abc", ""]) == [0, 1, 2, 3]


def test_large_unsigned_keys_come_back_exactly() -> None:
    table = KeyTable([pl.UInt64()])
    slots_of(table, [2**64 - 1, 2**63])
    assert keys_of(table, [0, 1]) == [(2**64 - 1,), (2**63,)]


def test_wide_decimals_come_back_exactly() -> None:
    keys = [Decimal(10) ** 30, -(Decimal(10) ** 30), None, Decimal("0.01")]
    table = KeyTable([pl.Decimal(38, 2)])
    assert slots_of(table, keys) == [0, 1, 2, 3]
    assert keys_of(table, [0, 1, 2, 3]) == [(key,) for key in keys]


def test_eight_word_columns_with_nulls_are_one_key() -> None:
    table = KeyTable([pl.Int64()] * 8)
    rows = [[1] * 8, [None, *[1] * 7], [*[1] * 7, None], [None] * 8, [1] * 8]
    assert slots_of(table, *zip(*rows, strict=True)) == [0, 1, 2, 3, 0]
    assert [list(key) for key in keys_of(table, [0, 1, 2, 3])] == rows[:4]


def test_more_than_eight_columns_are_one_key() -> None:
    table = KeyTable([pl.Int8()] * 12)
    rows = [[1] * 12, [*[1] * 11, None], [1] * 12]
    assert slots_of(table, *zip(*rows, strict=True)) == [0, 1, 0]
    assert [list(key) for key in keys_of(table, [1, 0])] == [rows[1], rows[0]]


def test_mixed_columns_come_back() -> None:
    table = KeyTable([pl.Date(), pl.String(), pl.Float64(), pl.Decimal(9, 2), pl.Binary()])
    rows = [
        (dt.date(2024, 1, 1), "a string longer than a view", 1.5, Decimal("1.25"), b"\0"),
        (None, None, None, None, None),
        (dt.date(1969, 1, 1), "", -1.5, Decimal("-1.25"), b"bytes longer than a view"),
    ]
    assert slots_of(table, *zip(*rows, strict=True)) == [0, 1, 2]
    assert keys_of(table, [2, 1, 0]) == rows[::-1]


def test_an_empty_batch_changes_nothing() -> None:
    for dtypes in ([pl.Int64()], [pl.String()], [pl.Int64(), pl.Int64()], [pl.Int64(), pl.String()]):
        table = KeyTable(dtypes)
        assert slots_of(table, *[[] for _ in dtypes]) == []
        assert [len(series) for series in table.gather(np.array([], dtype=np.int32), ["k"] * len(dtypes))] == [
            0 for _ in dtypes
        ]


def test_hashes_may_be_given() -> None:
    keys = [pl.Series(["b", "a", "b"])]
    table = KeyTable([pl.String()])
    assert table.slots(keys, hash_columns(keys)).tolist() == [0, 1, 0]
    assert table.find(keys, hash_columns(keys)).tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.String()], ids=str)
def test_keys_with_equal_hashes_stay_apart(dtype: pl.DataType) -> None:
    keys = [column(dtype, [i % 50 for i in range(500)])]
    table = KeyTable([dtype])
    hashes = np.zeros(500, dtype=np.uint64)
    assert table.slots(keys, hashes).tolist() == [i % 50 for i in range(500)]
    assert table.find(keys, hashes).tolist() == [i % 50 for i in range(500)]


def test_hashes_whose_upper_bits_look_like_an_empty_place_are_safe() -> None:
    keys = [pl.Series([1, 2, 1])]
    hashes = np.full(3, 2**64 - 1, dtype=np.uint64)
    for table in (KeyTable([pl.Int64()]), KeyTable([pl.Int64(), pl.Int64()])):
        columns = keys * len(table.dtypes)
        assert table.find(columns, hashes).tolist() == [-1, -1, -1]
        assert table.slots(columns, hashes).tolist() == [0, 1, 0]


def test_finding_inserts_nothing() -> None:
    table = KeyTable([pl.String()])
    slots_of(table, ["a"])
    assert table.find([pl.Series(["b", "a", None])]).tolist() == [-1, 0, -1]
    assert table.live == 1


def test_released_slots_are_used_again_last_first() -> None:
    table = KeyTable([pl.Int64()])
    slots_of(table, [10, 11, 12, 13])
    table.release(np.array([1, 3], dtype=np.int32))
    assert slots_of(table, [20, 21, 22]) == [3, 1, 4]
    assert (table.live, table.capacity) == (5, 5)


def test_a_released_key_is_forgotten() -> None:
    table = KeyTable([pl.String()])
    slots_of(table, ["a", "b"])
    table.release(np.array([0]))
    assert table.find([pl.Series(["a", "b"])]).tolist() == [-1, 1]


@pytest.mark.parametrize("slot", [-1, 2, 99])
def test_releasing_a_slot_without_a_key_is_an_error(slot: int) -> None:
    table = KeyTable([pl.Int64()])
    slots_of(table, [1, 2])
    with pytest.raises(ValueError, match=f"slot {slot} at row 0 holds no key"):
        table.release(np.array([slot]))


def test_releasing_a_slot_twice_is_an_error() -> None:
    table = KeyTable([pl.String()])
    slots_of(table, ["a", "b"])
    with pytest.raises(ValueError, match="slot 1 at row 1 holds no key"):
        table.release(np.array([1, 1]))


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.String()], ids=str)
@pytest.mark.parametrize("slot", [-1, 2])
def test_gathering_a_slot_never_handed_out_is_an_error(dtype: pl.DataType, slot: int) -> None:
    table = KeyTable([dtype])
    table.slots([column(dtype, [1, 2])])
    with pytest.raises(ValueError, match=f"slot {slot} at row 1"):
        table.gather(np.array([0, slot]), ["k"])


def test_hash_of_slots_is_the_key_hash() -> None:
    keys = [pl.Series(["a", None, "c"]), pl.Series([1, 2, None])]
    table = KeyTable([pl.String(), pl.Int64()])
    assert table.hash_of(table.slots(keys)).tolist() == hash_columns(keys).tolist()


def test_a_binary_table_is_an_interner_of_exact_bytes() -> None:
    words = [b"apple", b"", b"a\0b", b"apple", b"a string longer than a view"]
    table = KeyTable([pl.Binary()])
    slots = slots_of(table, words)
    arena, start, length = table.arena, table.arena_start, table.arena_length
    assert [bytes(arena[start[s] : start[s] + length[s]]) for s in slots] == words


def test_slots_without_a_key_have_length_minus_one() -> None:
    table = KeyTable([pl.Binary()])
    slots_of(table, [b"a", b"b"])
    table.release(np.array([0]))
    assert table.arena_length[:2].tolist() == [-1, 1]


def test_keys_of_fixed_width_have_no_arena() -> None:
    with pytest.raises(TypeError, match="no arena"):
        _ = KeyTable([pl.Int64()]).arena


def test_gathered_strings_survive_later_changes_of_the_table() -> None:
    table = KeyTable([pl.String()])
    keys = pl.Series([f"a string longer than a view {i}" for i in range(1000)])
    slots = table.slots([keys])
    gathered = table.gather(slots, ["k"])[0]
    table.release(slots)
    for round_number in range(5):
        table.slots([pl.Series([f"another string longer than a view {round_number} {i}" for i in range(3000)])])
    assert gathered.to_list() == keys.to_list()


@pytest.mark.parametrize("repeats", [1, 50])
def test_long_strings_come_back_from_small_and_large_gathers(repeats: int) -> None:
    keys = pl.Series([f"{i:02d}" * (i % 40) for i in range(2000)])
    table = KeyTable([pl.String()])
    slots = table.slots([keys])
    some = np.tile(slots[:40], repeats)
    assert table.gather(some, ["k"])[0].to_list() == keys[:40].to_list() * repeats


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.String()], ids=str)
def test_endless_churn_keeps_the_table_small(dtype: pl.DataType) -> None:
    table = KeyTable([dtype])
    for first in range(0, 200_000, 1000):
        slots = table.slots([column(dtype, range(first, first + 1000))])
        assert sorted(slots.tolist()) == list(range(1000))
        table.release(slots)
    assert (table.live, table.capacity) == (0, 1000)
    assert sum(array.nbytes for array in table.save().values()) < 100_000


def test_churn_beside_living_keys_keeps_the_arena_small() -> None:
    table = KeyTable([pl.String()])
    stay = table.slots([pl.Series([f"stays {i}" for i in range(500)])])
    for first in range(0, 100_000, 1000):
        table.release(table.slots([column(pl.String(), range(first, first + 1000))]))
    assert len(table.arena) <= 65_536
    assert table.gather(stay, ["k"])[0].to_list() == [f"stays {i}" for i in range(500)]


@pytest.mark.parametrize(
    "dtypes", [[pl.Int64()], [pl.String()], [pl.Int64(), pl.Float64()], [pl.Int64(), pl.String()]], ids=str
)
def test_a_loaded_table_goes_on_as_the_saved_one(dtypes: list[pl.DataType]) -> None:
    table, copy = KeyTable(dtypes), KeyTable(dtypes)
    table.slots([column(dtype, [*range(1000), None]) for dtype in dtypes])
    table.release(np.array([1000, 5, 700, 6]))
    copy.load(table.save())
    assert (copy.live, copy.capacity) == (table.live, table.capacity)
    for numbers in (range(900, 1100), range(200)):
        batch = [column(dtype, numbers) for dtype in dtypes]
        assert copy.find(batch).tolist() == table.find(batch).tolist()
        assert copy.slots(batch).tolist() == table.slots(batch).tolist()


@pytest.mark.parametrize("dtypes", [[pl.Int64()], [pl.String()], [pl.Int64(), pl.String()]], ids=str)
def test_saving_a_loaded_table_gives_the_same_arrays(dtypes: list[pl.DataType]) -> None:
    table, copy = KeyTable(dtypes), KeyTable(dtypes)
    table.slots([column(dtype, [None, *range(300)]) for dtype in dtypes])
    table.release(np.array([0, 17]))
    saved = table.save()
    copy.load(saved)
    again = copy.save()
    assert saved.keys() == again.keys()
    assert all(np.array_equal(saved[name], again[name]) for name in saved)


def test_loading_replaces_what_was_there() -> None:
    table = KeyTable([pl.String()])
    slots_of(table, ["a", "b"])
    table.load(KeyTable([pl.String()]).save())
    assert (table.live, table.capacity) == (0, 0)
    assert slots_of(table, ["b"]) == [0]


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.String()], ids=str)
def test_a_loaded_table_does_not_change_with_the_saved_one(dtype: pl.DataType) -> None:
    table, copy = KeyTable([dtype]), KeyTable([dtype])
    table.slots([column(dtype, [1, 2])])
    copy.load(table.save())
    table.release(np.array([0]))
    table.slots([column(dtype, [9, 10, 11])])
    assert copy.gather(np.array([0, 1]), ["k"])[0].to_list() == column(dtype, [1, 2]).to_list()
    assert copy.find([column(dtype, [1, 9])]).tolist() == [0, -1]


def test_loading_another_hash_version_is_refused() -> None:
    table = KeyTable([pl.Int64()])
    saved = table.save() | {"hash_version": np.array([99])}
    with pytest.raises(ValueError, match="hash version 99"):
        table.load(saved)


@pytest.mark.parametrize("dtype", [pl.List(pl.Int64), pl.Struct({"a": pl.Int8}), pl.Array(pl.Int8, 2), pl.Object()])
def test_types_that_cannot_be_keys_are_refused_by_name(dtype: pl.DataType) -> None:
    assert not supports(dtype)
    with pytest.raises(TypeError, match=str(dtype).split("(", maxsplit=1)[0]):
        KeyTable([pl.Int64(), dtype])


def test_a_key_without_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        KeyTable([])


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="key column 'x' is of type Int32, not Int64"):
        KeyTable([pl.Int64()]).slots([pl.Series("x", [1], dtype=pl.Int32)])


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(ValueError, match="has 2 columns, not 1"):
        KeyTable([pl.Int64(), pl.Int64()]).slots([pl.Series([1])])


def test_a_missing_name_is_refused() -> None:
    with pytest.raises(ValueError, match="has 1 columns, not 2"):
        KeyTable([pl.Int64()]).gather(np.array([0]), ["a", "b"])


def test_millions_of_keys_keep_their_slots() -> None:
    keys = np.random.default_rng(1).permutation(3_000_000) * 8
    table = KeyTable([pl.Int64()])
    batches = [pl.Series(keys[i : i + 65_536]) for i in range(0, len(keys), 65_536)]
    first = np.concatenate([table.slots([batch]) for batch in batches])
    assert np.array_equal(first, np.arange(3_000_000))
    table.release(first[1::2])
    found = np.concatenate([table.find([batch]) for batch in batches])
    assert np.array_equal(found, np.where(first % 2 == 0, first, -1))


class Model:
    """What a key table does, with a dict."""

    def __init__(self) -> None:
        self.slot: dict[Any, int] = {}
        self.free: list[int] = []
        self.next = 0

    def slots(self, keys: Sequence[Any]) -> list[int]:
        for key in keys:
            if key not in self.slot:
                if self.free:
                    self.slot[key] = self.free.pop()
                else:
                    self.slot[key] = self.next
                    self.next += 1
        return [self.slot[key] for key in keys]

    def release(self, slots: Sequence[int]) -> None:
        key_of = {slot: key for key, slot in self.slot.items()}
        for slot in slots:
            del self.slot[key_of[slot]]
            self.free.append(slot)


INTS = st.none() | st.integers(-3, 12) | st.sampled_from([2**63 - 1, -(2**63)])
TEXTS = st.none() | st.text("ab\0é", max_size=4) | st.sampled_from(["x" * 12, "x" * 13, "x" * 40, "y" * 40])
FLOATS = st.none() | st.sampled_from([0.0, 1.5, -1.5, 1e300])
DECIMALS = st.none() | st.sampled_from([Decimal("0.00"), Decimal("1.50"), Decimal(10) ** 25])
SHAPES: list[tuple[list[pl.DataType], list[st.SearchStrategy[Any]]]] = [
    ([pl.Int64()], [INTS]),
    ([pl.String()], [TEXTS]),
    ([pl.Float64()], [FLOATS]),
    ([pl.Int64(), pl.Float64()], [INTS, FLOATS]),
    ([pl.String(), pl.String()], [TEXTS, TEXTS]),
    ([pl.Int64(), pl.String(), pl.Decimal(38, 2)], [INTS, TEXTS, DECIMALS]),
]


def batch_of(table: KeyTable, keys: Sequence[tuple[Any, ...]]) -> list[pl.Series]:
    return [pl.Series([key[j] for key in keys], dtype=dtype) for j, dtype in enumerate(table.dtypes)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape[0]))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_table_does_what_a_dict_does(
    shape: tuple[list[pl.DataType], list[st.SearchStrategy[Any]]], data: st.DataObject
) -> None:
    dtypes, strategies = shape
    keys = st.lists(st.tuples(*strategies), max_size=25)
    table, model = KeyTable(dtypes), Model()
    for _ in range(data.draw(st.integers(1, 6))):
        batch = data.draw(keys)
        assert table.slots(batch_of(table, batch)).tolist() == model.slots(batch)
        assert keys_of(table, list(model.slot.values())) == list(model.slot)
        alive = sorted(model.slot.values())
        gone = data.draw(st.lists(st.sampled_from(alive), unique=True)) if alive else []
        table.release(np.array(gone, dtype=np.int32))
        model.release(gone)
        other = data.draw(keys)
        assert table.find(batch_of(table, other)).tolist() == [model.slot.get(key, -1) for key in other]
        assert (table.live, table.capacity) == (len(model.slot), model.next)


def test_random_churn_does_what_a_dict_does() -> None:
    generator = np.random.default_rng(7)
    table, model = KeyTable([pl.Int64()]), Model()
    for _ in range(300):
        keys: npt.NDArray[np.int64] = generator.integers(0, 5000, 200)
        assert table.slots([pl.Series(keys)]).tolist() == model.slots(keys.tolist())
        gone = generator.choice(list(model.slot.values()), len(model.slot) // 5, replace=False)
        table.release(gone)
        model.release(gone.tolist())
    everything = pl.Series(range(5000))
    assert table.find([everything]).tolist() == [model.slot.get(key, -1) for key in range(5000)]


@pytest.mark.parametrize("count", [3, 300, 100_000])
def test_room_that_was_made_before_changes_no_slot(count: int) -> None:
    keys = pl.Series([number * 7 % 50_000 for number in range(count)])
    expecting, plain = KeyTable([pl.Int64()]), KeyTable([pl.Int64()])
    expecting.expect(count)
    assert (expecting.slots([keys]) == plain.slots([keys])).all()
    expecting.expect(10 * count)
    assert (expecting.find([keys]) == plain.find([keys])).all()


def test_all_rows_that_are_there_are_no_list_of_rows() -> None:
    table = KeyTable([pl.String()])
    table.slots([pl.Series(["a", "b"])])
    rows, slots = table.find_rows([pl.Series(["b", "a", "b"])])
    assert rows is None
    assert slots.tolist() == [1, 0, 1]
    rows, slots = table.find_rows([pl.Series(["c"])])
    assert rows is not None
    assert (rows.tolist(), slots.tolist()) == ([], [])
