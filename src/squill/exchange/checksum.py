"""The checksum of what is written for others to read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from squill.exchange.kernels.checksum import LANES, STRIPE, add_bytes, begin_bytes, end_bytes

__all__ = ["checksum"]


def checksum(pieces: Iterable[bytes | pa.Buffer]) -> int:
    """Return a checksum of the bytes of all pieces, one after the other, as a signed number.

    Examples
    --------
    >>> checksum([b"squill"]) == checksum([b"squ", b"ill"])
    True
    """
    state, tail = np.empty(LANES + 1, np.uint64), np.zeros(STRIPE, np.uint8)
    begin_bytes(state)
    for piece in pieces:
        content = np.frombuffer(piece, np.uint8)
        # What can be written to is another type for a kernel.
        content.flags.writeable = False
        add_bytes(state, tail, content)
    out = np.empty(1, np.uint64)
    end_bytes(state, tail, out)
    return int(out.view(np.int64)[0])
