"""64-bit numbers in as few bytes as the range of a batch's values needs.

Times of a batch lie close together, and most keys are small. Bytes that travel are written, checked and read, or copied
once more on their way to a disk, so that to send four instead of eight takes less time though each value is touched
once more on either side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.columns import Int64s, read_only
from squill.engine.kernels.lifetimes import bounds
from squill.exchange.kernels.narrow import distances, from_distances

__all__ = ["narrowed", "widened"]

Array = npt.NDArray[Any]
WIDTHS = (np.uint8, np.uint16, np.uint32)
LEAST_ROWS = 256
"""With fewer rows the bytes are few, and what says how they are written is more."""
SAMPLES = 16


def narrowed(values: Int64s) -> tuple[Array, int] | None:
    """Return how far values are above the least of them, in few bytes, and that one; None where that saves nothing.

    Examples
    --------
    >>> values = np.arange(1_000, 2_000)
    >>> narrow, base = narrowed(values)
    >>> narrow.dtype, base, bool((widened(narrow, base) == values).all())
    (dtype('uint16'), 1000, True)
    """
    if len(values) < LEAST_ROWS:
        return None
    some = values[:: len(values) // SAMPLES]
    if int(some.max()) - int(some.min()) > np.iinfo(WIDTHS[-1]).max:
        return None  # so that numbers of any size, as hashes are, are not all looked at
    low, high = bounds(read_only(values))
    for width in WIDTHS:
        if high - low <= np.iinfo(width).max:
            narrow = np.empty(len(values), width)
            distances(read_only(values), low, narrow)
            return narrow, int(low)
    return None


def widened(narrow: Array, base: int) -> Int64s:
    """Return the values that `narrowed` was given."""
    values = np.empty(len(narrow), np.int64)
    from_distances(read_only(narrow), base, values)
    return values
