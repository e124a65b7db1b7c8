"""The hash loops read nothing outside their rows. Run again with NUMBA_BOUNDSCHECK=1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from squill.engine.columns import all_valid, read_only
from squill.engine.kernels import hashing as kernels

Array = npt.NDArray[Any]


def hashed_bytes(rows: list[bytes]) -> list[int]:
    lengths = np.array([len(row) for row in rows])
    starts = np.cumsum(lengths) - lengths
    data = read_only(np.frombuffer(b"".join(rows), dtype=np.uint8))
    out = np.empty(len(rows), dtype=np.uint64)
    kernels.hash_bytes(read_only(starts), read_only(lengths), data, all_valid(len(rows)), out, True)
    return out.tolist()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 12, 15, 31, 32, 33, 63, 64, 100])
def test_a_string_at_the_end_of_the_data_hashes_as_one_before_others(length: int) -> None:
    row = bytes(range(1, length + 1))
    assert hashed_bytes([row])[0] == hashed_bytes([b"x", row, b"following bytes"])[1]


def test_every_byte_of_a_string_counts() -> None:
    strings = [bytes(k == j for k in range(50)) for j in range(50)]
    assert len(set(hashed_bytes(strings))) == 50


def test_a_string_and_its_zero_padded_copy_differ() -> None:
    assert len(set(hashed_bytes([b"a" + b"\0" * k for k in range(40)]))) == 40


def test_nulls_hash_to_the_constant() -> None:
    out = np.empty(2, dtype=np.uint64)
    words, valid = read_only(np.array([1, 1])), read_only(np.array([0, 1], dtype=np.uint8))
    kernels.hash_words(words, valid, True, False, out, True)
    assert out[0] == kernels.NULL_HASH
    assert out[1] != kernels.NULL_HASH


def test_limbs_that_fit_hash_as_words() -> None:
    words = np.array([0, 1, -1, 2**63 - 1, -(2**63)])
    narrow, wide = np.empty(5, dtype=np.uint64), np.empty(5, dtype=np.uint64)
    kernels.hash_words(read_only(words), all_valid(5), False, False, narrow, True)
    kernels.hash_limbs(read_only(words >> 63), read_only(words), all_valid(5), wide, True)
    assert narrow.tolist() == wide.tolist()


def test_limbs_that_do_not_fit_differ_from_their_low_word() -> None:
    low = read_only(np.array([5, -5, 5]))
    high = read_only(np.array([0, 0, 7]))
    out = np.empty(3, dtype=np.uint64)
    kernels.hash_limbs(high, low, all_valid(3), out, True)
    words = np.empty(3, dtype=np.uint64)
    kernels.hash_words(low, all_valid(3), False, False, words, True)
    assert (out == words).tolist() == [True, False, False]


def test_float_bits_are_canonical() -> None:
    values = read_only(np.array([0.0, -0.0, np.nan, -np.nan, 1.0, 1.0]))
    valid = read_only(np.array([1, 1, 1, 1, 1, 0], dtype=np.uint8))
    out = np.empty(6, dtype=np.int64)
    kernels.canonical_float_bits(values, values.view(np.int64), valid, out)
    assert out.tolist() == [0, 0, 0x7FF8 << 48, 0x7FF8 << 48, 0x3FF0 << 48, 0]
