"""64-bit numbers in as few bytes as the range of a batch's values needs.

Times of a batch lie close together, most keys are small, and times are often all multiples of something: seconds,
written as microseconds, or the hops of windows. Bytes that travel are written, checked and read, or copied once more on
their way to a disk, so that to send four instead of eight takes less time though each value is touched once more on
either side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from squill.engine.columns import Int64s, read_only
from squill.engine.kernels.lifetimes import bounds
from squill.engine.large_arrays import large_array
from squill.exchange.kernels.narrow import distances, from_steps, steps

__all__ = ["Narrow", "narrowed", "widened"]

Array = npt.NDArray[Any]
WIDTHS = ((2**8 - 1, np.dtype(np.uint8)), (2**16 - 1, np.dtype(np.uint16)), (2**32 - 1, np.dtype(np.uint32)))
"""The largest numbers of so many bytes."""
LEAST_ROWS = 256
"""With fewer rows the bytes are few, and what says how they are written is more."""
SAMPLES = 64
TRIES = 4
"""How often a step is tried that some value turns out not to be a multiple of."""
MOST_EXACT = 1 << 53
"""Distances below it are the same as floating point numbers, and dividing these is quicker."""


class Narrow(NamedTuple):
    """Values as ``base + step * count``."""

    counts: Array
    base: int
    step: int


def narrowed(values: Int64s) -> Narrow | None:
    """Return how many steps values are above the least of them, in few bytes; None where that saves nothing.

    Examples
    --------
    >>> values = np.arange(1_000, 100_000, 10)
    >>> narrow = narrowed(values)
    >>> narrow.counts.dtype, narrow.base, narrow.step, bool((widened(*narrow) == values).all())
    (dtype('uint16'), 1000, 10, True)
    """
    if len(values) < LEAST_ROWS:
        return None
    some = values[:: len(values) // SAMPLES]
    step = abs(int(np.gcd.reduce(some - some[0]))) or 1
    # So that numbers of any size, as hashes are, are not all looked at.
    if _width(int(some.max()) - int(some.min()), step) is None:
        return None
    low, high = map(int, bounds(read_only(values)))
    plain = _width(high - low, 1)
    for _ in range(TRIES):
        width = _width(high - low, step)
        # To divide takes longer than to subtract, and is for what saves more.
        if width is None or width is plain:
            break
        counts = np.empty(len(values), width)
        odd = steps(read_only(values), low, step, counts)
        if odd < 0:
            return Narrow(counts, low, step)
        step = math.gcd(step, int(values[odd]) - low)
    if plain is None:
        return None
    counts = np.empty(len(values), plain)
    distances(read_only(values), low, counts)
    return Narrow(counts, low, 1)


def _width(distance: int, step: int) -> np.dtype[Any] | None:
    if step > 1 and distance >= MOST_EXACT:
        return None
    return next((width for most, width in WIDTHS if distance // step <= most), None)


def widened(counts: Array, base: int, step: int) -> Int64s:
    """Return the values that `narrowed` was given."""
    values: Int64s = large_array(len(counts), np.int64)
    from_steps(read_only(counts), base, step, values)
    return values
