from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.kernels import fold_products as kernels
from tests.unit.engine.kernels.helpers import called_from_python

beyond_int64 = called_from_python(kernels.beyond_int64)
change_integer = called_from_python(kernels.change_integer)
inverse = called_from_python(kernels.inverse)

factors = st.one_of(st.integers(1, 2**64 - 1), st.integers(1, 20))


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1))
def test_odd_numbers_have_inverses(half: int) -> None:
    odd = 2 * half + 1
    assert int(inverse(np.uint64(odd))) * odd % 2**64 == 1


@settings(deadline=None)
@given(st.lists(factors, max_size=12), st.lists(factors, min_size=1, max_size=3))
def test_factors_that_leave_give_back_the_product(gone: list[int], left: list[int]) -> None:
    state, exact = np.zeros((1, kernels.FLOAT_STATE)), np.zeros((1, kernels.EXACT_STATE), np.int64)
    for factor in [*gone, *left]:
        change_integer(state, exact, 0, 1, np.uint64(factor))
    for factor in gone:
        change_integer(state, exact, 0, -1, np.uint64(factor))
    product = math.prod(left)
    odd = product // (product & -product)
    assert int(exact[0, kernels.ODD]) % 2**64 == odd % 2**64
    assert int(exact[0, kernels.TWOS]) == (product & -product).bit_length() - 1
    assert bool(beyond_int64(state, 0, True)) == (product > 2**63)
    assert bool(beyond_int64(state, 0, False)) == (product >= 2**63)
