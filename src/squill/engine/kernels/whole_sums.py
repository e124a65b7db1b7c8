"""Sums of a whole column."""

from __future__ import annotations

from typing import Any

import numpy as np

from squill.engine.kernels.jit import kernel

__all__ = ["sum_words", "sum_words_valid"]

Array = Any


@kernel
def sum_words(values: Array) -> tuple[int, int]:
    """Return the sum modulo 2^64, and the exact sum of the upper halves: together they say the exact sum.

    No branch and no carry, so that the loop is as fast as memory. The upper halves fit for 2^32 values.
    """
    low, upper = 0, 0
    for i in range(len(values)):
        low += values[i]
        upper += values[i] >> 32
    return low, upper


@kernel
def sum_words_valid(values: Array, valid: Array) -> tuple[int, int]:
    """As `sum_words`, of the values that are there."""
    low, upper = 0, 0
    for i in range(len(values)):
        value = values[i] & -np.int64(valid[i])
        low += value
        upper += value >> 32
    return low, upper
