"""Loops that sort rows by their receiver."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import kernel

__all__ = ["partition_rows"]

Array = npt.NDArray[Any]


@kernel
def partition_rows(hashes: Array, shards: np.uint64, receiver: Array, begin: Array, order: Array) -> None:
    """Order rows by ``hash % shards`` with a counting sort: two passes, equal receivers keep their order.

    Afterwards the rows of shard s are ``order[begin[s]:begin[s + 1]]``. `receiver` is scratch of one int32 per
    row; `begin` has one entry more than there are shards and comes as zeros.
    """
    for i in range(len(hashes)):
        shard = np.int64(hashes[i] % shards)
        receiver[i] = shard
        begin[shard + 1] += 1
    for s in range(1, len(begin)):
        begin[s] += begin[s - 1]
    # Filling moves every begin to the next one's place, so they are moved back afterwards.
    for i in range(len(hashes)):
        shard = np.int64(receiver[i])
        order[begin[shard]] = i
        begin[shard] += 1
    for s in range(len(begin) - 1, 0, -1):
        begin[s] = begin[s - 1]
    begin[0] = 0
