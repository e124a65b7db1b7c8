"""Loops that bring words into another order."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["words_at"]

Array = npt.NDArray[Any]


@kernel
def words_at(values: Array, rows: Array, out: Array) -> None:
    """Write the given rows one after the other; the caller knows that they are there."""
    for i in range(len(rows)):
        out[i] = values[rows[i]]
