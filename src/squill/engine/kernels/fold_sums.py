"""Folds that add: counts of values, exact integer and decimal sums, float sums, means and variances.

Every fold walks the deltas instant by instant: it applies an instant's deltas to the state of their slots,
then reads the value of each of the instant's cells. The deltas of an instant that is still open come last
and are applied without reading. A slot left empty starts again from nothing.

Float sums are double-doubles. A value that a float cannot hold (a long integer, a decimal) comes as two.
Values near the end of the range have an accumulator of their own, scaled down, so that a sum that overflows
does so only in its snapshot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import prefetch_word
from squill.engine.kernels.schedule import AHEAD

__all__ = [
    "decimal_pairs", "fold_count", "fold_decimal_sum", "fold_float_sum", "fold_integer_sum", "fold_variance",
    "integer_pairs", "split_product", "two_sum",
]  # fmt: skip

Array = Any

# Columns of the float state: a double-double sum, then how many NaN, +inf, −inf and values there are, then
# the scaled sum of values near the end of the range. Of variances: the squares, and how many overflow.
HIGH, LOW, NANS, PLUS, MINUS, COUNT, TOP_HIGH, TOP_LOW = 0, 1, 2, 3, 4, 5, 6, 7
SQUARE_HIGH, SQUARE_LOW, HUGE = 8, 9, 10
FLOAT_STATE = 8
VARIANCE_STATE = 11
DECIMAL_STATE = 3
SUM, MEAN = 0, 1

TOP = 2.0**960
TOP_SCALE = 2.0**64
SQUARE_LIMIT = 2.0**480

# 10^38 in two words: the first number that Decimal(38) does not hold.
DECIMAL_HIGH = 5421010862427522170
DECIMAL_LOW = 687399551400673280


@kernel
def fold_count(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, valid: Array, counts: Array, out: Array,
) -> None:  # fmt: skip
    """How many rows are valid."""
    d = 0
    c = 0
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            prefetch_word(counts, np.int64(d_slot[u(min(d + AHEAD, n_deltas - 1))]))
            counts[u(d_slot[u(d)])] += d_sign[u(d)] * np.int64(valid[u(d_row[u(d)])])
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = u(c_slot[u(c)])
                out[u(c)] = counts[slot]
                if c_alive[u(c)] == 0:
                    counts[slot] = 0
                c += 1


@kernel
def fold_integer_sum(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, values: Array, valid: Array, unsigned: bool, sums: Array, out: Array,
) -> int:  # fmt: skip
    """Exact sums in 128 bits: sums[slot] = (low word, multiples of 2^64).

    Returns the first cell whose value leaves 64 bits, or −1.
    """
    d = 0
    c = 0
    overflow = -1
    words = sums.reshape(-1)
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            prefetch_word(words, 2 * np.int64(d_slot[u(min(d + AHEAD, n_deltas - 1))]))
            row = u(d_row[u(d)])
            if valid[row]:
                slot = u(d_slot[u(d)])
                v = values[row]
                low = sums[slot, 0]
                if d_sign[u(d)] > 0:
                    total = low + v
                    if ((low ^ total) & (v ^ total)) < 0:
                        sums[slot, 1] += 1 if v > 0 else -1
                    if unsigned and v < 0:
                        sums[slot, 1] += 1
                else:
                    total = low - v
                    if ((low ^ v) & (low ^ total)) < 0:
                        sums[slot, 1] += 1 if v < 0 else -1
                    if unsigned and v < 0:
                        sums[slot, 1] -= 1
                sums[slot, 0] = total
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = u(c_slot[u(c)])
                out[u(c)] = sums[slot, 0]
                if sums[slot, 1] != 0 and overflow < 0:
                    overflow = c
                if c_alive[u(c)] == 0:
                    sums[slot, 0] = 0
                    sums[slot, 1] = 0
                c += 1
    return overflow


@kernel
def fold_decimal_sum(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, highs: Array, lows: Array, valid: Array, sums: Array,
    out_high: Array, out_low: Array,
) -> int:  # fmt: skip
    """Exact sums of 128-bit numbers in 192 bits: sums[slot] = three words, the lowest first.

    Returns the first cell whose value has more than 38 digits, or −1.
    """
    d = 0
    c = 0
    overflow = -1
    words = sums.reshape(-1)
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            prefetch_word(words, DECIMAL_STATE * np.int64(d_slot[u(min(d + AHEAD, n_deltas - 1))]))
            row = u(d_row[u(d)])
            if valid[row]:
                add_words(sums, u(d_slot[u(d)]), highs[row], lows[row], d_sign[u(d)])
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = u(c_slot[u(c)])
                out_low[u(c)] = sums[slot, 0]
                out_high[u(c)] = sums[slot, 1]
                if overflow < 0 and beyond_decimal(sums[slot, 2], sums[slot, 1], sums[slot, 0]):
                    overflow = c
                c += 1
    return overflow


@inlined
def add_words(sums: Array, slot: int, high: int, low: int, sign: int) -> None:
    """Add or take away a number of two words; taking away is adding the complement and 1."""
    v0, v1, v2 = np.uint64(low), np.uint64(high), np.uint64(high >> 63)
    carry = np.uint64(0)
    if sign < 0:
        v0, v1, v2 = ~v0, ~v1, ~v2
        carry = np.uint64(1)
    total = np.uint64(sums[slot, 0])
    low_sum = total + v0
    overflows = np.uint64(low_sum < v0)
    low_sum += carry
    carry = overflows | np.uint64(low_sum < carry)
    total = np.uint64(sums[slot, 1])
    middle_sum = total + v1
    overflows = np.uint64(middle_sum < v1)
    middle_sum += carry
    carry = overflows | np.uint64(middle_sum < carry)
    sums[slot, 0] = np.int64(low_sum)
    sums[slot, 1] = np.int64(middle_sum)
    sums[slot, 2] = np.int64(np.uint64(sums[slot, 2]) + v2 + carry)


@inlined
def beyond_decimal(top: int, high: int, low: int) -> bool:
    if top != high >> 63:
        return True
    size_high, size_low = high, np.uint64(low)
    if high < 0:
        size_low = np.uint64(0) - size_low
        size_high = ~high + (1 if size_low == np.uint64(0) else 0)
    if size_high != DECIMAL_HIGH:
        return size_high > DECIMAL_HIGH or size_high < 0
    return size_low >= np.uint64(DECIMAL_LOW)


@inlined
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@inlined
def split_product(a: float, b: float) -> tuple[float, float]:
    """Return a · b and its rounding error (Dekker); neither may be near the ends of the range."""
    product = a * b
    split = 134217729.0 * a
    a_big = split - (split - a)
    a_small = a - a_big
    split = 134217729.0 * b
    b_big = split - (split - b)
    b_small = b - b_big
    return product, ((a_big * b_big - product) + a_big * b_small + a_small * b_big) + a_small * b_small


@kernel
def integer_pairs(words: Array, unsigned: bool, high: Array, low: Array) -> None:
    """Write 64-bit integers as sums of two floats, exactly."""
    for row in range(len(words)):
        v = words[row]
        upper = np.float64(np.uint64(v) >> np.uint64(32)) if unsigned else np.float64(v >> 32)
        high[row], low[row] = two_sum(upper * 4294967296.0, np.float64(v & 0xFFFFFFFF))


@kernel
def decimal_pairs(highs: Array, lows: Array, high: Array, low: Array) -> None:
    """Write 128-bit integers as sums of two floats, to 106 bits."""
    for row in range(len(highs)):
        top = np.float64(highs[row] >> 32) * 79228162514264337593543950336.0
        total, rest = two_sum(top, np.float64(highs[row] & 0xFFFFFFFF) * 18446744073709551616.0)
        total, error = two_sum(total, np.float64(np.uint64(lows[row]) >> np.uint64(32)) * 4294967296.0)
        rest += error
        total, error = two_sum(total, np.float64(lows[row] & 0xFFFFFFFF))
        high[row], low[row] = two_sum(total, rest + error)


@inlined
def add_exactly(state: Array, slot: int, high: int, low: int, v: float) -> None:
    """Add v to the double-double state[slot, high] + state[slot, low]."""
    total, error = two_sum(state[slot, high], v)
    tail = state[slot, low] + error
    new = total + tail
    state[slot, high] = new
    state[slot, low] = tail - (new - total)


@inlined
def add_value(state: Array, slot: int, v: float, rest: float, sign: int) -> None:
    """Count special values apart, so that they leave with their rows; add the others."""
    state[slot, COUNT] += sign
    if abs(v) < TOP:
        add_exactly(state, slot, HIGH, LOW, sign * v)
        if rest != 0.0:
            add_exactly(state, slot, HIGH, LOW, sign * rest)
    elif np.isfinite(v):
        add_exactly(state, slot, TOP_HIGH, TOP_LOW, sign * v / TOP_SCALE)
    elif np.isnan(v):
        state[slot, NANS] += sign
    elif v > 0:
        state[slot, PLUS] += sign
    else:
        state[slot, MINUS] += sign


@inlined
def special_sum(state: Array, slot: int) -> float:
    """The sum where special values are alive: NaN, or an infinity."""
    if state[slot, NANS] > 0 or (state[slot, PLUS] > 0 and state[slot, MINUS] > 0):
        return np.nan
    return np.inf if state[slot, PLUS] > 0 else -np.inf


@inlined
def has_special(state: Array, slot: int) -> bool:
    return state[slot, NANS] + state[slot, PLUS] + state[slot, MINUS] > 0


@inlined
def ordinary_sum(state: Array, slot: int, divisor: float) -> float:
    """The sum of the other values, divided."""
    if state[slot, TOP_HIGH] == 0.0:
        return (state[slot, HIGH] + state[slot, LOW]) / divisor
    small = state[slot, HIGH] / TOP_SCALE
    scaled = (state[slot, TOP_HIGH] + small) + (state[slot, TOP_LOW] + state[slot, LOW] / TOP_SCALE)
    return scaled / divisor * TOP_SCALE


@kernel
def fold_float_sum(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, values: Array, valid: Array, rests: Array, scale: float, mode: int,
    state: Array, out: Array, out_valid: Array,
) -> None:  # fmt: skip
    """Sums (mode SUM) or means (mode MEAN), divided by `scale`.

    `rests` is empty, or holds what the values lack.
    """
    d = 0
    c = 0
    has_rests = len(rests) > 0
    words = state.reshape(-1)
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            prefetch_word(words, FLOAT_STATE * np.int64(d_slot[u(min(d + AHEAD, n_deltas - 1))]))
            row = u(d_row[u(d)])
            if valid[row]:
                add_value(state, u(d_slot[u(d)]), values[row], rests[row] if has_rests else 0.0, d_sign[u(d)])
            d += 1
        if i < n_instants:
            last = i_cell[i] - 1
            while c <= last:
                prefetch_word(words, FLOAT_STATE * np.int64(c_slot[u(min(c + AHEAD, last))]))
                slot = u(c_slot[u(c)])
                count = state[slot, COUNT]
                out_valid[u(c)] = 1
                if count == 0:
                    for k in range(FLOAT_STATE):
                        state[slot, u(k)] = 0.0
                    out[u(c)] = 0.0
                    out_valid[u(c)] = 0 if mode == MEAN else 1
                elif has_special(state, slot):
                    out[u(c)] = special_sum(state, slot)
                else:
                    out[u(c)] = ordinary_sum(state, slot, count * scale if mode == MEAN else scale)
                c += 1


@inlined
def add_square(state: Array, slot: int, v: float, rest: float, sign: int) -> None:
    """Add sign · v² exactly; squares that overflow are counted."""
    if abs(v) > SQUARE_LIMIT:
        state[slot, HUGE] += sign
        return
    square, error = split_product(v, v)
    add_exactly(state, slot, SQUARE_HIGH, SQUARE_LOW, sign * square)
    add_exactly(state, slot, SQUARE_HIGH, SQUARE_LOW, sign * (error + 2.0 * v * rest))


@inlined
def squared_deviations(state: Array, slot: int, count: float) -> float:
    """Σx² − (Σx)²/n in double-double; never below zero."""
    s = state[slot, HIGH]
    square, error = split_product(s, s)
    error += 2.0 * s * state[slot, LOW]
    quotient = square / count
    product, product_error = split_product(quotient, count)
    rest = ((square - product) - product_error + error) / count
    high = state[slot, SQUARE_HIGH] - quotient
    low = state[slot, SQUARE_LOW] - rest
    return max(high + low, 0.0)


@inlined
def variance(state: Array, slot: int, count: float, ddof: float) -> float:
    if has_special(state, slot):
        return np.nan
    if count == 1:
        return 0.0
    if state[slot, HUGE] > 0:
        return np.inf
    return squared_deviations(state, slot, count) / (count - ddof)


@kernel
def fold_variance(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, values: Array, valid: Array, rests: Array, scale: float, ddof: float,
    root: bool, state: Array, out: Array, out_valid: Array,
) -> None:  # fmt: skip
    """Variances divided by the square of `scale`, or with `root` standard deviations."""
    d = 0
    c = 0
    has_rests = len(rests) > 0
    words = state.reshape(-1)
    for i in range(n_instants + 1):
        stop = i_delta[i] if i < n_instants else n_deltas
        while d < stop:
            prefetch_word(words, VARIANCE_STATE * np.int64(d_slot[u(min(d + AHEAD, n_deltas - 1))]))
            row = u(d_row[u(d)])
            if valid[row]:
                v = values[row]
                rest = rests[row] if has_rests else 0.0
                slot = u(d_slot[u(d)])
                add_value(state, slot, v, rest, d_sign[u(d)])
                if np.isfinite(v):
                    add_square(state, slot, v, rest, d_sign[u(d)])
            d += 1
        if i < n_instants:
            while c < i_cell[i]:
                slot = u(c_slot[u(c)])
                count = state[slot, COUNT]
                out[u(c)] = 0.0
                out_valid[u(c)] = 0
                if count - ddof > 0:
                    value = variance(state, slot, count, ddof)
                    out[u(c)] = np.sqrt(value) / scale if root else value / (scale * scale)
                    out_valid[u(c)] = 1
                if count == 0:
                    for k in range(VARIANCE_STATE):
                        state[slot, u(k)] = 0.0
                c += 1
