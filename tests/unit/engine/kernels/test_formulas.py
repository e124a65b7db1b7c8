"""A formula in a kernel gives what NumPy's unsigned arithmetic gives."""

from __future__ import annotations

import numpy as np
import pytest

from squill.engine.kernels.formulas import formula
from squill.engine.kernels.jit import kernel

LARGE = 0x9E3779B97F4A7C15


@formula
def every_operation(x: np.uint64, y: np.uint64) -> np.uint64:
    shifted = (x << np.uint64(7)) | (x >> np.uint64(57))
    return (np.uint64(LARGE) ^ (x * y - shifted)) + (np.uint64(3) - (y & np.uint64(0xFF)))


@kernel
def computed(x: int, y: int) -> int:
    return every_operation(x, y)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (1, 2), (-1, 5), (2**63 - 1, -(2**63)), (LARGE - 2**64, 255)])
def test_a_formula_is_unsigned_arithmetic_modulo_two_to_the_64(x: int, y: int) -> None:
    a, b = x % 2**64, y % 2**64
    shifted = (a << 7 | a >> 57) % 2**64
    expected = ((LARGE ^ ((a * b - shifted) % 2**64)) + (3 - (b & 0xFF))) % 2**64
    assert int(computed(np.int64(x), np.int64(y))) == expected
