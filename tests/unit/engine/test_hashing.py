"""The key hash is stable for ever, by value, and spreads well."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squill.engine.hashing import HASH_VERSION, hash_columns, supports

INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
NULL = 0x6E756C6C6E756C6C
MASK = 2**64 - 1


def hash_of(value: object, dtype: pl.DataType | type[pl.DataType] | None = None) -> int:
    return int(hash_columns([pl.Series([value], dtype=dtype)])[0])


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def combine(h: int, following: int) -> int:
    h = (h * 0x9E3779B97F4A7C15 + following) & MASK
    h = (h ^ h >> 32) * 0xBF58476D1CE4E5B9 & MASK
    return h ^ h >> 32


def rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0, after the specification, for comparison."""
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def step(lane: int, word: int) -> int:
        return rotate((lane + word * p2) & MASK, 31) * p1 & MASK

    at, h = 0, p5
    if len(data) >= 32:
        lanes = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        while at + 32 <= len(data):
            words = [int.from_bytes(data[at + 8 * k : at + 8 * k + 8], "little") for k in range(4)]
            lanes = [step(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        h = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ step(0, lane)) * p1 + p4) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h ^= step(0, int.from_bytes(data[at : at + 8], "little"))
        h = (rotate(h, 27) * p1 + p4) & MASK
        at += 8
    if at + 4 <= len(data):
        h ^= int.from_bytes(data[at : at + 4], "little") * p1 & MASK
        h = (rotate(h, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * p5 & MASK, 11) * p1 & MASK
    h = (h ^ h >> 33) * p2 & MASK
    h = (h ^ h >> 29) * p3 & MASK
    return h ^ h >> 32


# These values are written on disks of users. When a test fails here, the code is wrong, never the value.
GOLDEN = [
    (0, pl.Int64(), 0xE220A8397B1DCDAF),
    (1, pl.Int64(), 0x910A2DEC89025CC1),
    (-1, pl.Int64(), 0xE4D971771B652C20),
    (2**63 - 1, pl.Int64(), 0x2A67D7552E039EA7),
    (2**63, pl.UInt64(), 0xE72DAD1108A01653),
    (2**64 - 1, pl.UInt64(), 0x88C12A49721A7D54),
    (True, pl.Boolean(), 0x910A2DEC89025CC1),
    (dt.date(2024, 2, 29), pl.Date(), 0xDB8C04CA25F6E90D),
    (dt.datetime(2024, 2, 29, 12), pl.Datetime("us"), 0xBE34D00A6C8BEC4A),
    (dt.timedelta(seconds=1), pl.Duration("ms"), 0x3C1EBA8B4DCCC148),
    (dt.time(1), pl.Time(), 0x87F147BF2FF3DB33),
    (0.0, pl.Float64(), 0xE220A8397B1DCDAF),
    (1.5, pl.Float64(), 0xD6DAB18E1392608A),
    (1.5, pl.Float32(), 0xD6DAB18E1392608A),
    (float("nan"), pl.Float64(), 0xC72971D82E15BB46),
    (float("inf"), pl.Float64(), 0x249E5410C2F97D99),
    ("", pl.String(), 0xEF46DB3751D8E999),
    ("a", pl.String(), 0xD24EC4F1A98C6E5B),
    ("abc", pl.String(), 0x44BC2CF5AD770999),
    ("Nobody inspects the spammish repetition", pl.String(), 0xFBCEA83C8A378BF1),
    ("é", pl.Categorical(), 0x17D757DFB8B46F78),
    (b"\0\xff", pl.Binary(), 0xE0D97D9A03131D7D),
    (Decimal("1.50"), pl.Decimal(10, 2), 0xF8C632FF416764A8),
    (Decimal(10) ** 30, pl.Decimal(38, 2), 0x3B6F29260EA7FF10),
    (-(Decimal(10) ** 30), pl.Decimal(38, 2), 0x2F3CA3669C430C3B),
    (None, pl.Int64(), 0x6E756C6C6E756C6C),
]


@pytest.mark.parametrize(("value", "dtype", "expected"), GOLDEN)
def test_hash_of_version_1_never_changes(value: object, dtype: pl.DataType, expected: int) -> None:
    assert HASH_VERSION == 1
    assert hash_of(value, dtype) == expected


def test_hash_of_several_columns_never_changes() -> None:
    columns = [pl.Series([1]), pl.Series(["a"]), pl.Series([None], dtype=pl.Float64)]
    assert int(hash_columns(columns)[0]) == 0x9874DE10B0CEFD8F


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_hash_by_split_mix(value: int) -> None:
    assert hash_of(value, pl.Int64) == mix(value & MASK)


@given(st.integers(-(10**37), 10**37))
def test_wide_integers_hash_both_words(value: int) -> None:
    high, low = value >> 64 & MASK, value & MASK
    fits = -(2**63) <= value < 2**63
    expected = mix(low) if fits else mix(low ^ mix(high ^ 0xA0761D6478BD642F))
    assert hash_of(Decimal(value), pl.Decimal(38, 0)) == expected


@given(st.integers(0, 2**64 - 1))
def test_unsigned_integers_hash_as_wide_ones(value: int) -> None:
    assert hash_of(value, pl.UInt64) == hash_of(Decimal(value), pl.Decimal(38, 0))


@given(st.floats())
def test_floats_hash_their_canonical_bits(value: float) -> None:
    canonical = float("nan") if value != value else value + 0.0  # noqa: PLR0124
    bits = int.from_bytes(struct.pack("<d", canonical), "little")
    assert hash_of(value, pl.Float64) == mix(bits)


@given(st.binary(max_size=200))
def test_bytes_hash_by_xxh64(data: bytes) -> None:
    assert hash_of(data, pl.Binary) == xxh64(data)


@given(st.text(max_size=60))
def test_text_hashes_by_its_utf8_bytes(text: str) -> None:
    assert hash_of(text, pl.String) == hash_of(text.encode(), pl.Binary)


@given(st.integers(-(2**63), 2**63 - 1), st.text(max_size=10))
def test_columns_fold_from_the_left(number: int, text: str) -> None:
    both = hash_columns([pl.Series([number]), pl.Series([text])])
    assert int(both[0]) == combine(hash_of(number, pl.Int64), hash_of(text, pl.String))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_any_width_hash_by_value(dtype: type[pl.DataType]) -> None:
    assert hash_of(5, dtype) == mix(5)


def test_a_negative_integer_hashes_alike_in_any_width() -> None:
    assert hash_of(-3, pl.Int8) == hash_of(-3, pl.Int64)


def test_an_unsigned_integer_differs_from_the_signed_one_with_its_bits() -> None:
    assert hash_of(2**64 - 1, pl.UInt64) != hash_of(-1, pl.Int64)


def test_dates_and_booleans_hash_by_value() -> None:
    assert hash_of(dt.date(1970, 1, 6), pl.Date) == hash_of(5, pl.Int64)
    assert hash_of(True, pl.Boolean) == hash_of(1, pl.Int64)


def test_a_decimal_that_fits_hashes_as_its_unscaled_integer() -> None:
    assert hash_of(Decimal("-1.50"), pl.Decimal(20, 2)) == hash_of(-150, pl.Int64)


def test_a_wide_decimal_hashes_as_the_unsigned_integer_of_its_value() -> None:
    assert hash_of(Decimal(2**63), pl.Decimal(38, 0)) == hash_of(2**63, pl.UInt64)


def test_negative_zero_hashes_as_zero() -> None:
    assert hash_of(-0.0, pl.Float64) == hash_of(0.0, pl.Float64)


def test_every_nan_hashes_alike() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123], dtype=np.uint64)
    assert len(set(hash_columns([pl.Series(bits.view(np.float64))]).tolist())) == 1


def test_floats_of_any_width_hash_by_value() -> None:
    assert hash_of(0.5, pl.Float16) == hash_of(0.5, pl.Float32) == hash_of(0.5, pl.Float64)


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(["b", "a"])], ids=str)
def test_categories_hash_by_their_text(dtype: pl.DataType) -> None:
    assert hash_of("a", dtype) == hash_of("a", pl.String)


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Int8(),
        pl.UInt64(),
        pl.Float32(),
        pl.Boolean(),
        pl.String(),
        pl.Binary(),
        pl.Decimal(9, 1),
        pl.Null(),
    ],
    ids=str,
)
def test_null_of_any_type_hashes_to_one_constant(dtype: pl.DataType) -> None:
    assert hash_of(None, dtype) == NULL


def test_a_null_beside_values_does_not_touch_them() -> None:
    hashes = hash_columns([pl.Series([1, None, 2])])
    assert hashes.tolist() == [hash_of(1), NULL, hash_of(2)]


def test_the_order_of_columns_matters() -> None:
    a, b = pl.Series([1]), pl.Series([2])
    assert hash_columns([a, b]) != hash_columns([b, a])


def test_rows_hash_alike_in_any_batch() -> None:
    numbers, texts = pl.Series(range(1000)), pl.Series([f"text {i}" * (i % 9) for i in range(1000)])
    whole = hash_columns([numbers, texts])
    parts = [hash_columns([numbers[i : i + 7], texts[i : i + 7]]) for i in range(0, 1000, 7)]
    assert np.concatenate(parts).tolist() == whole.tolist()


@pytest.mark.parametrize("every", [2, 7, 100])
def test_text_that_lies_scattered_hashes_alike(every: int) -> None:
    """A filter leaves rows where they lie, far from each other."""
    whole = pl.Series([f"http://example.com/{number}/and so on" for number in range(20_000)])
    kept = whole.filter(pl.Series(range(20_000)) % every == 0)
    together = pl.Series(kept.to_list())
    assert (hash_columns([kept]) == hash_columns([together])).all()
    assert (hash_columns([kept.reverse()]) == hash_columns([together])[::-1]).all()


def test_no_rows_have_no_hashes() -> None:
    assert len(hash_columns([pl.Series([], dtype=pl.String)])) == 0


def test_no_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        hash_columns([])


@pytest.mark.parametrize("dtype", [pl.List(pl.Int64), pl.Struct({"a": pl.Int64}), pl.Array(pl.Int8, 2), pl.Int128()])
def test_types_that_cannot_be_keys_are_refused_by_name(dtype: pl.DataType) -> None:
    assert not supports(dtype)
    with pytest.raises(TypeError, match=str(dtype).split("(", maxsplit=1)[0]):
        hash_columns([pl.Series([], dtype=dtype)])


def test_hashes_are_read_only() -> None:
    assert not hash_columns([pl.Series([1]), pl.Series([2])]).flags.writeable


@pytest.mark.parametrize("shift", [0, 20, 32, 44, 54])
@pytest.mark.parametrize("stride", [1, 8, 1000, 2**40])
def test_sequential_integers_fill_buckets_evenly(shift: int, stride: int) -> None:
    hashes = hash_columns([pl.Series(np.arange(1 << 17) * stride)])
    counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(1023)).astype(np.int64), minlength=1024)
    chi_square = ((counts - 128.0) ** 2 / 128.0).sum()
    assert 850 < chi_square < 1200  # 1023 +- 45


@pytest.mark.parametrize("shift", [0, 32, 54])
def test_numbered_strings_fill_buckets_evenly(shift: int) -> None:
    hashes = hash_columns([pl.Series([f"user-{i:010d}" for i in range(1 << 16)])])
    counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(1023)).astype(np.int64), minlength=1024)
    assert 850 < ((counts - 64.0) ** 2 / 64.0).sum() < 1200


def test_small_pairs_do_not_collide() -> None:
    a = np.repeat(np.arange(1000), 1000)
    assert len(np.unique(hash_columns([pl.Series(a), pl.Series(a.reshape(1000, 1000).T.ravel())]))) == 10**6


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_one_bit_of_an_integer_flips_half_of_the_hash(bit: int) -> None:
    keys = np.random.default_rng(bit).integers(-(2**62), 2**62, 10_000)
    flipped = hash_columns([pl.Series(keys)]) ^ hash_columns([pl.Series(keys ^ np.int64(1 << min(bit, 62)))])
    shares = np.unpackbits(flipped.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    assert abs(shares - 0.5).max() < 0.03
