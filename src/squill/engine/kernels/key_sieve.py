"""Loops over the bits that say which keys may be in a table.

A key's bit is told by the upper half of its hash: the low bits chose the keys of this shard. Sizes are powers of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import always_inlined, kernel

__all__ = ["mark_hashes", "sift_hashes"]

Array = npt.NDArray[Any]

U1, U32, U38, U63 = np.uint64(1), np.uint64(32), np.uint64(38), np.uint64(63)


@always_inlined
def bit_of(h: np.uint64) -> np.uint64:
    return (h >> U32) & U63


@kernel
def mark_hashes(hashes: Array, bits: Array) -> None:
    """Set the bit of each hash."""
    last = np.uint64(len(bits) - 1)
    for i in range(len(hashes)):
        bits[(hashes[i] >> U38) & last] |= U1 << bit_of(hashes[i])


@kernel
def sift_hashes(hashes: Array, bits: Array, rows: Array) -> np.int64:
    """Write the rows whose bit is set, and return how many there are; `rows` has room for all."""
    last = np.uint64(len(bits) - 1)
    n = np.uint64(0)
    for i in range(len(hashes)):
        # Written in any case, and kept where the bit says so: nobody can foretell which way a branch would go.
        rows[n] = i
        n += (bits[(hashes[i] >> U38) & last] >> bit_of(hashes[i])) & U1
    return np.int64(n)
