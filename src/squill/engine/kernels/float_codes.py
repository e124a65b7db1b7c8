"""Codes of floats: integers in the order of the floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squill.engine.kernels.jit import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["code_floats", "decode_floats"]

MAGNITUDE = 0x7FFFFFFFFFFFFFFF
INFINITY = 0x7FF0000000000000
NOT_A_NUMBER = 0x7FF8000000000000


@kernel
def code_floats(bits: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Turn the bits of floats into codes in their order; zero and NaN each have one code."""
    for row in range(bits.size):
        magnitude = bits[row] & MAGNITUDE
        if magnitude > INFINITY:
            out[row] = NOT_A_NUMBER
        else:
            out[row] = magnitude if bits[row] >= 0 or magnitude == 0 else ~magnitude


@kernel
def decode_floats(codes: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Turn codes into the bits of their floats."""
    for row in range(codes.size):
        out[row] = codes[row] ^ ((codes[row] >> 63) & MAGNITUDE)
