"""Loops that write 64-bit numbers in fewer bytes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["distances", "from_distances"]

Array = npt.NDArray[Any]


@kernel
def distances(values: Array, base: np.int64, out: Array) -> None:
    """Write how far each value is above `base`; the caller knows that `out` holds it."""
    for i in range(len(out)):
        out[i] = values[i] - base


@kernel
def from_distances(narrow: Array, base: np.int64, out: Array) -> None:
    """Write the values again."""
    for i in range(len(out)):
        out[i] = np.int64(narrow[i]) + base
