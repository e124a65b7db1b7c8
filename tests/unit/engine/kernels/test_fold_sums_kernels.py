from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.kernels import fold_sums as kernels
from tests.unit.engine.kernels.helpers import called_from_python

add_words = called_from_python(kernels.add_words)
beyond_decimal = called_from_python(kernels.beyond_decimal)

MODULUS = 2**192


def words(value: int) -> tuple[int, int]:
    low = value % 2**64
    return value >> 64, low - 2**64 if low >= 2**63 else low


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**127), 2**127 - 1), st.sampled_from([1, -1])), max_size=20))
def test_sums_in_192_bits_are_exact(changes: list[tuple[int, int]]) -> None:
    sums = np.zeros((1, 3), np.int64)
    for value, sign in changes:
        add_words(sums, 0, *map(np.int64, words(value)), sign)
    found = sum((int(word) % 2**64) << (64 * place) for place, word in enumerate(sums[0]))
    assert found == sum(value * sign for value, sign in changes) % MODULUS


@settings(deadline=None)
@given(st.one_of(st.integers(-(2**127), 2**127 - 1), st.integers(-3, 3).map(lambda i: 10**38 + i)))
def test_the_end_of_38_digits(value: int) -> None:
    for signed in (value, -value) if value > -(2**127) else (value,):
        if -(2**127) <= signed < 2**127:
            high, low = words(signed)
            assert bool(beyond_decimal(high >> 63, np.int64(high), np.int64(low))) == (abs(signed) >= 10**38)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_is_two_floats(value: int) -> None:
    high, low = np.empty(1), np.empty(1)
    kernels.integer_pairs(np.array([value]), False, high, low)
    assert Fraction(high[0]) + Fraction(low[0]) == value
    kernels.integer_pairs(np.array([value]), True, high, low)
    assert Fraction(high[0]) + Fraction(low[0]) == value % 2**64


@settings(deadline=None)
@given(st.integers(-(2**127), 2**127 - 1))
def test_a_decimal_is_nearly_two_floats(value: int) -> None:
    high, low = np.empty(1), np.empty(1)
    upper, lower = words(value)
    kernels.decimal_pairs(np.array([upper]), np.array([lower]), high, low)
    assert abs(Fraction(high[0]) + Fraction(low[0]) - value) <= Fraction(abs(value), 2**100)
