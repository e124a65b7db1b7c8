"""Loops of the stable key hash; the algorithm is written down in `squill.engine.hashing`.

Every kernel here fills `out` with one 64-bit hash per row of one column. Nothing in this file may change
a result without a new HASH_VERSION: placements on disk depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import load_half, load_word

__all__ = [
    "NULL_HASH",
    "canonical_float_bits",
    "combine_hashes",
    "hash_bytes",
    "hash_limbs",
    "hash_words",
    "xxh64",
]

Array = npt.NDArray[Any]

NULL_HASH = np.uint64(0x6E756C6C6E756C6C)  # "nullnull"
NAN_BITS = np.int64(0x7FF8000000000000)
WIDE = np.uint64(0xA0761D6478BD642F)

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)

XX_1 = np.uint64(0x9E3779B185EBCA87)
XX_2 = np.uint64(0xC2B2AE3D27D4EB4F)
XX_3 = np.uint64(0x165667B19E3779F9)
XX_4 = np.uint64(0x85EBCA77C2B2AE63)
XX_5 = np.uint64(0x27D4EB2F165667C5)

U1 = np.uint64(1)
U4 = np.uint64(4)
U7 = np.uint64(7)
U8 = np.uint64(8)
U11 = np.uint64(11)
U12 = np.uint64(12)
U16 = np.uint64(16)
U18 = np.uint64(18)
U23 = np.uint64(23)
U24 = np.uint64(24)
U27 = np.uint64(27)
U29 = np.uint64(29)
U30 = np.uint64(30)
U31 = np.uint64(31)
U32 = np.uint64(32)
U33 = np.uint64(33)
U37 = np.uint64(37)
U41 = np.uint64(41)
U46 = np.uint64(46)
U52 = np.uint64(52)
U53 = np.uint64(53)
U57 = np.uint64(57)
U63 = np.uint64(63)


@inlined
def split_mix(x: np.uint64) -> np.uint64:
    x = x + GOLDEN
    x = (x ^ (x >> U30)) * MIX_1
    x = (x ^ (x >> U27)) * MIX_2
    return x ^ (x >> U31)


@inlined
def wide_mix(high: np.uint64, low: np.uint64) -> np.uint64:
    # high is 0 or all ones by the sign of low exactly when the value fits in a signed 64-bit integer.
    if high == np.uint64(np.int64(low) >> 63):
        return split_mix(low)
    return split_mix(low ^ split_mix(high ^ WIDE))


@inlined
def xx_round(lane: np.uint64, word: np.uint64) -> np.uint64:
    lane = lane + word * XX_2
    return ((lane << U31) | (lane >> U33)) * XX_1


@inlined
def xx_merge(h: np.uint64, lane: np.uint64) -> np.uint64:
    return (h ^ xx_round(np.uint64(0), lane)) * XX_1 + XX_4


@inlined
def xxh64(data: Array, start: np.int64, end: np.int64) -> np.uint64:
    """XXH64 with seed 0 of ``data[start:end]``."""
    at = np.uint64(start)
    stop = np.uint64(end)
    length = stop - at
    if length >= U32:
        a = XX_1 + XX_2
        b = XX_2
        c = np.uint64(0)
        d = np.uint64(0) - XX_1
        while at + U32 <= stop:
            a = xx_round(a, load_word(data, at))
            b = xx_round(b, load_word(data, at + U8))
            c = xx_round(c, load_word(data, at + U16))
            d = xx_round(d, load_word(data, at + U24))
            at += U32
        h = ((a << U1) | (a >> U63)) + ((b << U7) | (b >> U57)) + ((c << U12) | (c >> U52)) + ((d << U18) | (d >> U46))
        h = xx_merge(h, a)
        h = xx_merge(h, b)
        h = xx_merge(h, c)
        h = xx_merge(h, d)
    else:
        h = XX_5
    h += length
    while at + U8 <= stop:
        h ^= xx_round(np.uint64(0), load_word(data, at))
        h = ((h << U27) | (h >> U37)) * XX_1 + XX_4
        at += U8
    if at + U4 <= stop:
        h ^= load_half(data, at) * XX_1
        h = ((h << U23) | (h >> U41)) * XX_2 + XX_3
        at += U4
    while at < stop:
        h ^= np.uint64(data[at]) * XX_5
        h = ((h << U11) | (h >> U53)) * XX_1
        at += U1
    h = (h ^ (h >> U33)) * XX_2
    h = (h ^ (h >> U29)) * XX_3
    return h ^ (h >> U32)


@kernel
def hash_words(words: Array, valid: Array, has_nulls: bool, is_unsigned: bool, out: Array) -> None:
    """Hash int64 words: integers by value (`is_unsigned`: the words are bits of uint64), floats by bits."""
    if is_unsigned:
        for i in range(len(words)):
            out[i] = wide_mix(np.uint64(0), np.uint64(words[i]))
    else:
        for i in range(len(words)):
            out[i] = split_mix(np.uint64(words[i]))
    if has_nulls:
        for i in range(len(words)):
            if valid[i] == 0:
                out[i] = NULL_HASH


@kernel
def hash_limbs(high: Array, low: Array, valid: Array, out: Array) -> None:
    """Hash 128-bit integers; those that fit in 64 bits hash as `hash_words` does."""
    for i in range(len(high)):
        if valid[i] == 0:
            out[i] = NULL_HASH
        else:
            out[i] = wide_mix(np.uint64(high[i]), np.uint64(low[i]))


@kernel
def hash_bytes(offsets: Array, data: Array, valid: Array, out: Array) -> None:
    """Hash byte strings."""
    for i in range(len(out)):
        if valid[i] == 0:
            out[i] = NULL_HASH
        else:
            out[i] = xxh64(data, offsets[i], offsets[i + 1])


@kernel
def combine_hashes(hashes: Array, more: Array) -> None:
    """Fold the next column's hashes into `hashes`, in place."""
    for i in range(len(hashes)):
        h = hashes[i] * GOLDEN + more[i]
        h = (h ^ (h >> U32)) * MIX_1
        hashes[i] = h ^ (h >> U32)


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
