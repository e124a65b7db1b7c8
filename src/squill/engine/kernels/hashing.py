"""Loops of the stable key hash; the algorithm is written down in `squill.engine.hashing`.

Every kernel here fills `out` with one 64-bit hash per row of one column, or, if that is not the first column of
the key, folds it into what is there. Nothing in this file may change a result without a new HASH_VERSION:
placements on disk depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.formulas import formula
from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import load_byte, load_half, load_word, prefetch_word

__all__ = [
    "NULL_HASH",
    "canonical_float_bits",
    "hash_bytes",
    "hash_limbs",
    "hash_words",
]

Array = npt.NDArray[Any]

NULL_HASH = np.uint64(0x6E756C6C6E756C6C)  # "nullnull"
NAN_BITS = np.int64(0x7FF8000000000000)
WIDE = np.uint64(0xA0761D6478BD642F)

U27 = np.uint64(27)
U29 = np.uint64(29)
U30 = np.uint64(30)
U31 = np.uint64(31)
U32 = np.uint64(32)
U33 = np.uint64(33)

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)

XX_1 = np.uint64(0x9E3779B185EBCA87)
XX_2 = np.uint64(0xC2B2AE3D27D4EB4F)
XX_3 = np.uint64(0x165667B19E3779F9)
XX_4 = np.uint64(0x85EBCA77C2B2AE63)
XX_5 = np.uint64(0x27D4EB2F165667C5)

AHEAD = 12
"""Bytes that lie scattered are fetched while so many rows before them are hashed."""
NEAR, LOOKED_AT = 192, 64
"""Rows are scattered when most of so many lie further from each other than so many bytes."""


def mixed(x: np.uint64) -> np.uint64:
    x = x + GOLDEN
    x = (x ^ (x >> U30)) * MIX_1
    x = (x ^ (x >> U27)) * MIX_2
    return x ^ (x >> U31)


@formula
def split_mix(x: np.uint64) -> np.uint64:
    return mixed(x)


@formula
def wide_mix(high: np.uint64, low: np.uint64) -> np.uint64:
    return mixed(low ^ mixed(high ^ WIDE))


@formula
def combine(h: np.uint64, more: np.uint64) -> np.uint64:
    h = h * GOLDEN + more
    h = (h ^ (h >> U32)) * MIX_1
    return h ^ (h >> U32)


def rotated(x: np.uint64, bits: int) -> np.uint64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def merged(h: np.uint64, lane: np.uint64) -> np.uint64:
    return (h ^ (rotated(lane * XX_2, 31) * XX_1)) * XX_1 + XX_4


@formula
def xx_round(lane: np.uint64, word: np.uint64) -> np.uint64:
    return rotated(lane + word * XX_2, 31) * XX_1


@formula
def xx_lanes(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> np.uint64:
    h = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18)
    return merged(merged(merged(merged(h, a), b), c), d)


@formula
def xx_word(h: np.uint64, word: np.uint64) -> np.uint64:
    return rotated(h ^ (rotated(word * XX_2, 31) * XX_1), 27) * XX_1 + XX_4


@formula
def xx_half(h: np.uint64, half: np.uint64) -> np.uint64:
    return rotated(h ^ (half * XX_1), 23) * XX_2 + XX_3


@formula
def xx_byte(h: np.uint64, byte: np.uint64) -> np.uint64:
    return rotated(h ^ (byte * XX_5), 11) * XX_1


@formula
def xx_end(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> U33)) * XX_2
    h = (h ^ (h >> U29)) * XX_3
    return h ^ (h >> U32)


@kernel
def hash_words(words: Array, valid: Array, has_nulls: bool, is_unsigned: bool, out: Array, is_first: bool) -> None:
    """Hash int64 words: integers by value (`is_unsigned`: the words are bits of uint64), floats by bits."""
    for i in range(len(words)):
        h = split_mix(words[i])
        if is_unsigned and words[i] < 0:
            h = wide_mix(0, words[i])
        if has_nulls and valid[i] == 0:
            h = NULL_HASH
        out[i] = h if is_first else combine(out[i], h)


@kernel
def hash_limbs(high: Array, low: Array, valid: Array, out: Array, is_first: bool) -> None:
    """Hash 128-bit integers; those that fit in 64 bits hash as `hash_words` does."""
    for i in range(len(high)):
        # high is 0 or -1 by the sign of low exactly when the value fits in a signed 64-bit integer.
        h = split_mix(low[i]) if high[i] == low[i] >> 63 else wide_mix(high[i], low[i])
        if valid[i] == 0:
            h = NULL_HASH
        out[i] = h if is_first else combine(out[i], h)


@inlined
def is_scattered(starts: Array) -> bool:
    """Say, by the first rows, whether most lie far from the one before, as a filter of few rows leaves them."""
    far = 0
    rows = min(len(starts), LOOKED_AT)
    for i in range(1, rows):
        far += abs(starts[i] - starts[i - 1]) > NEAR
    return 2 * far > rows


@kernel
def hash_bytes(starts: Array, lengths: Array, data: Array, valid: Array, out: Array, is_first: bool) -> None:
    """Hash byte strings by XXH64 with seed 0."""
    # Fetched only when hashed, 43 bytes take 165 instead of 28 ns; bytes in a row the processor fetches itself.
    fetches = is_scattered(starts)
    for i in range(len(out)):
        if fetches and i + AHEAD < len(out):
            prefetch_word(data, starts[i + AHEAD])
            prefetch_word(data, starts[i + AHEAD] + lengths[i + AHEAD])
        at = starts[i]
        end = at + lengths[i]
        h = XX_5
        if end - at >= 32:
            a, b, c, d = XX_1 + XX_2, XX_2, np.uint64(0), np.uint64(0) - XX_1
            while at + 32 <= end:
                a = xx_round(a, load_word(data, at))
                b = xx_round(b, load_word(data, at + 8))
                c = xx_round(c, load_word(data, at + 16))
                d = xx_round(d, load_word(data, at + 24))
                at += 32
            h = xx_lanes(a, b, c, d)
        h += np.uint64(lengths[i])
        while at + 8 <= end:
            h = xx_word(h, load_word(data, at))
            at += 8
        if at + 4 <= end:
            h = xx_half(h, load_half(data, at))
            at += 4
        while at < end:
            h = xx_byte(h, load_byte(data, at))
            at += 1
        h = xx_end(h) if valid[i] else NULL_HASH
        out[i] = h if is_first else combine(out[i], h)


@kernel
def canonical_float_bits(values: Array, bits: Array, valid: Array, out: Array) -> None:
    """Copy the bits of floats, with one zero and one NaN, 0 under nulls; `bits` views `values` as int64."""
    for i in range(len(values)):
        value = values[i]
        if value == 0.0 or valid[i] == 0:
            out[i] = 0
        elif value != value:
            out[i] = NAN_BITS
        else:
            out[i] = bits[i]
