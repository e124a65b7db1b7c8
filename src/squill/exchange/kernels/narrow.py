"""Loops that write 64-bit numbers in fewer bytes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["distances", "from_steps", "steps"]

Array = npt.NDArray[Any]


@kernel
def distances(values: Array, base: np.int64, out: Array) -> None:
    """Write how far each value is above `base`; the caller knows that `out` holds it."""
    for i in range(len(out)):
        out[i] = values[i] - base


@kernel
def steps(values: Array, base: np.int64, step: np.int64, out: Array) -> int:
    """Write how many steps each value is above `base`; return the first one that lies between two steps, or −1.

    The caller knows that `out` holds the counts, and that distances are below 2**53.
    """
    share = 1.0 / step
    for i in range(len(out)):
        distance = values[i] - base
        count = np.int64(distance * share + 0.5)
        if count * step != distance:
            return i
        out[i] = count
    return -1


@kernel
def from_steps(counts: Array, base: np.int64, step: np.int64, out: Array) -> None:
    """Write the values again."""
    for i in range(len(out)):
        out[i] = np.int64(counts[i]) * step + base
