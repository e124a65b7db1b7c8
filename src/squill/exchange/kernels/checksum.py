"""XXH64 of bytes that come in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.hashing import XX_1, XX_2, XX_5, xx_byte, xx_end, xx_half, xx_lanes, xx_round, xx_word
from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import load_byte, load_half, load_word

__all__ = ["STRIPE", "TOTAL", "add_bytes", "begin_bytes", "end_bytes"]

Array = npt.NDArray[Any]

STRIPE = 32
TOTAL = 4
"""Where the number of bytes stands, after the four lanes."""


@kernel
def begin_bytes(state: Array) -> None:
    """Set the five numbers of a state for seed 0."""
    state[0], state[1], state[2], state[3] = XX_1 + XX_2, XX_2, np.uint64(0), np.uint64(0) - XX_1
    state[TOTAL] = np.uint64(0)


@kernel
def add_bytes(state: Array, tail: Array, data: Array) -> None:
    """Add a piece; `tail` is room for the bytes of a stripe that is not yet full."""
    held = np.int64(state[TOTAL] % np.uint64(STRIPE))
    state[TOTAL] += np.uint64(len(data))
    at = np.int64(0)
    if held:
        while held < STRIPE and at < len(data):
            tail[held] = data[at]
            held += 1
            at += 1
        if held < STRIPE:
            return
        _add_stripes(state, tail, np.int64(0))
    at = _add_stripes(state, data, at)
    for k in range(len(data) - at):
        tail[k] = data[at + k]


@inlined
def _add_stripes(state: Array, data: Array, at: int) -> int:
    """Take all whole stripes from a place on; return where they end."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    end = len(data)
    while at + STRIPE <= end:
        a = xx_round(a, load_word(data, at))
        b = xx_round(b, load_word(data, at + 8))
        c = xx_round(c, load_word(data, at + 16))
        d = xx_round(d, load_word(data, at + 24))
        at += STRIPE
    state[0], state[1], state[2], state[3] = a, b, c, d
    return at


@kernel
def end_bytes(state: Array, tail: Array, out: Array) -> None:
    """Write the hash of all that was added."""
    total = state[TOTAL]
    h = xx_lanes(state[0], state[1], state[2], state[3]) if total >= np.uint64(STRIPE) else XX_5
    h += total
    at, end = np.int64(0), np.int64(total % np.uint64(STRIPE))
    while at + 8 <= end:
        h = xx_word(h, load_word(tail, at))
        at += 8
    if at + 4 <= end:
        h = xx_half(h, load_half(tail, at))
        at += 4
    while at < end:
        h = xx_byte(h, load_byte(tail, at))
        at += 1
    out[0] = xx_end(h)
