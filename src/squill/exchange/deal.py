"""Which shard each bucket of keys goes to.

A key's bucket is its hash modulo the number of buckets, and a *deal* names the shard of every bucket. The plain deal
has as many buckets as shards and is what `hash % shards` says: placements that are stored, or that tasks in other
processes must agree on, are always plain. An even deal has more buckets and knows their weights.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Deal", "bucket_count", "even_deal", "plain_deal"]

Deal = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]

BUCKETS = 1_024
"""So many are enough that no bucket but one of a heavy key weighs much."""


def bucket_count(shards: int) -> int:
    """Return how many buckets are dealt out: a multiple of the shards, and of powers of two a power of two."""
    return shards * max(1, BUCKETS // shards)


def plain_deal(shards: int) -> Deal:
    return np.arange(shards, dtype=np.int32)


def even_deal(weights: npt.NDArray[Any], shards: int) -> Deal:
    """Deal out the heaviest bucket first, always to the shard that has least; equal ones in turn.

    Examples
    --------
    >>> even_deal(np.array([1, 6, 1, 2, 3, 1]), 2).tolist()
    [1, 0, 0, 1, 1, 1]
    """
    deal = np.empty(len(weights), np.int32)
    # A bucket of which nothing is known yet is not nothing.
    known = weights + 1e-3 * max(float(np.mean(weights)), 1e-9)
    loads = [(0.0, shard) for shard in range(shards)]
    for bucket in np.argsort(-known, kind="stable"):
        load, shard = loads[0]
        deal[bucket] = shard
        heapq.heapreplace(loads, (load + float(known[bucket]), shard))
    return deal
