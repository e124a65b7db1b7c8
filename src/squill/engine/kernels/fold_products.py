"""Fold: products that can be taken back.

A product of n factors is kept as sign, mantissa and exponent: the mantissa in double-double, between 1/2
and 1, the exponent as a whole number, so neither overflows. Zeros, negative signs, NaNs and infinities are
counted apart; they leave with their rows. A product with no ordinary factor left starts again from 1.

A product of integers must be exact. An integer is an odd number times a power of two, and odd numbers have
inverses modulo 2^64. So the product of the odd parts modulo 2^64 and the number of twos follow every factor
that comes or goes, however large the true product is. When the mantissa and exponent say that the true
product fits 64 bits, these two are the product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from squill.engine.kernels.fold_sums import split_product, two_sum
from squill.engine.kernels.jit import inlined, kernel

__all__ = ["fold_float_product", "fold_integer_product"]

Array = Any

# Columns of the state.
HIGH, LOW, EXPONENT, FACTORS, NEGATIVES, ZEROS, NANS, INFINITIES = 0, 1, 2, 3, 4, 5, 6, 7
FLOAT_STATE = 8
# Columns of the exact state.
ODD, TWOS = 0, 1
EXACT_STATE = 2


@inlined
def multiply(state: Array, slot: int, high: float, low: float, exponent: int) -> None:
    """Multiply by (high + low) · 2^exponent."""
    a, b = state[slot, HIGH], state[slot, LOW]
    product, error = split_product(a, high)
    store(state, slot, product, error + (a * low + b * high), state[slot, EXPONENT] + exponent)


@inlined
def divide(state: Array, slot: int, high: float, low: float, exponent: int) -> None:
    """Divide by (high + low) · 2^exponent."""
    a, b = state[slot, HIGH], state[slot, LOW]
    quotient = a / high
    product, error = split_product(quotient, high)
    rest = ((a - product) - error + b - quotient * low) / high
    store(state, slot, quotient, rest, state[slot, EXPONENT] - exponent)


@inlined
def store(state: Array, slot: int, high: float, low: float, exponent: float) -> None:
    total, rest = two_sum(high, low)
    mantissa, shift = math.frexp(total)
    state[slot, HIGH] = mantissa
    state[slot, LOW] = math.ldexp(rest, -shift)
    state[slot, EXPONENT] = exponent + shift


@inlined
def change_factor(state: Array, slot: int, sign: int, high: float, low: float, exponent: int) -> None:
    """Let an ordinary factor, not negative, come or go."""
    if state[slot, FACTORS] == 0:
        state[slot, HIGH] = 0.5
        state[slot, LOW] = 0.0
        state[slot, EXPONENT] = 1.0
    state[slot, FACTORS] += sign
    if sign > 0:
        multiply(state, slot, high, low, exponent)
    else:
        divide(state, slot, high, low, exponent)


@inlined
def change_float(state: Array, slot: int, sign: int, v: float) -> None:
    if np.isnan(v):
        state[slot, NANS] += sign
        return
    if v < 0.0:
        state[slot, NEGATIVES] += sign
    if v == 0.0:
        state[slot, ZEROS] += sign
    elif np.isinf(v):
        state[slot, INFINITIES] += sign
    else:
        mantissa, exponent = math.frexp(abs(v))
        change_factor(state, slot, sign, mantissa, 0.0, exponent)


@inlined
def float_product(state: Array, slot: int) -> float:
    zeros, infinities = state[slot, ZEROS], state[slot, INFINITIES]
    if state[slot, NANS] > 0 or (zeros > 0 and infinities > 0):
        return np.nan
    value = 1.0
    if zeros > 0:
        value = 0.0
    elif infinities > 0:
        value = np.inf
    elif state[slot, FACTORS] > 0:
        exponent = state[slot, EXPONENT]
        if exponent > 2000:
            value = np.inf
        elif exponent < -2000:
            value = 0.0
        else:
            value = math.ldexp(state[slot, HIGH] + state[slot, LOW], np.int64(exponent))
    return -value if np.int64(state[slot, NEGATIVES]) & 1 else value


@inlined
def is_empty(state: Array, slot: int) -> bool:
    return state[slot, FACTORS] + state[slot, ZEROS] + state[slot, NANS] + state[slot, INFINITIES] == 0


@kernel
def fold_float_product(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, values: Array, valid: Array, state: Array, out: Array, out_valid: Array,
) -> None:  # fmt: skip
    d = 0
    c = 0
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            row = d_row[d]
            if valid[row]:
                change_float(state, d_slot[d], d_sign[d], values[row])
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = c_slot[c]
                out_valid[c] = 0 if is_empty(state, slot) else 1
                out[c] = float_product(state, slot)
                c += 1


@inlined
def inverse(odd: np.uint64) -> np.uint64:
    """Return the inverse of an odd number modulo 2^64, by Newton's method: each step doubles the bits."""
    x = odd * np.uint64(3) ^ np.uint64(2)  # right in the last 5 bits
    for _ in range(4):
        x *= np.uint64(2) - odd * x
    return x


@inlined
def change_integer(state: Array, exact: Array, slot: int, sign: int, v: np.uint64) -> None:
    """Let an integer factor above zero come or go."""
    if state[slot, FACTORS] == 0:
        exact[slot, ODD] = 1
        exact[slot, TWOS] = 0
    # Halves of 32 bits convert exactly; normalised they are a double-double.
    high, low = two_sum(np.float64(v >> np.uint64(32)) * 4294967296.0, np.float64(v & np.uint64(0xFFFFFFFF)))
    mantissa, exponent = math.frexp(high)
    change_factor(state, slot, sign, mantissa, math.ldexp(low, -exponent), exponent)
    twos = 0
    while v & np.uint64(1) == np.uint64(0):
        v >>= np.uint64(1)
        twos += 1
    odd = v if sign > 0 else inverse(v)
    exact[slot, ODD] = np.int64(np.uint64(exact[slot, ODD]) * odd)
    exact[slot, TWOS] += sign * twos


@inlined
def beyond_int64(state: Array, slot: int, negative: bool) -> bool:
    """Whether the product of the factors leaves 64 bits; −2^63 is the one of that size that does not."""
    exponent = state[slot, EXPONENT]
    if exponent <= 62:
        return False
    if exponent >= 66:
        return True
    scale = math.ldexp(1.0, np.int64(exponent))
    above = (state[slot, HIGH] * scale - 9223372036854775808.0) + state[slot, LOW] * scale
    return above > 0.5 or (above > -0.5 and not negative)


@kernel
def fold_integer_product(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, values: Array, valid: Array, unsigned: bool, state: Array, exact: Array,
    out: Array, out_valid: Array,
) -> int:  # fmt: skip
    """Returns the first cell whose product leaves 64 bits, or −1."""
    d = 0
    c = 0
    overflow = -1
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            row = d_row[d]
            if valid[row]:
                slot = d_slot[d]
                v = values[row]
                if v == 0:
                    state[slot, ZEROS] += d_sign[d]
                else:
                    size = np.uint64(v)
                    if v < 0 and not unsigned:
                        state[slot, NEGATIVES] += d_sign[d]
                        size = np.uint64(0) - size
                    change_integer(state, exact, slot, d_sign[d], size)
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = c_slot[c]
                out_valid[c] = 0 if is_empty(state, slot) else 1
                negative = np.int64(state[slot, NEGATIVES]) & 1 == 1
                value = np.uint64(0)
                if state[slot, ZEROS] == 0 and state[slot, FACTORS] > 0:
                    if beyond_int64(state, slot, negative) and overflow < 0:
                        overflow = c
                    if exact[slot, TWOS] < 64:
                        value = np.uint64(exact[slot, ODD]) << np.uint64(exact[slot, TWOS])
                out[c] = np.int64(np.uint64(0) - value if negative else value)
                c += 1
    return overflow
