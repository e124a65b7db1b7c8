"""Which shard each bucket of keys goes to.

A key's bucket is its hash modulo the number of buckets, and a *deal* names the shard of every bucket. The plain deal
has as many buckets as shards and is what `hash % shards` says: placements that are stored, or that tasks in other
processes must agree on, are always plain. An even deal has more buckets and knows their weights.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Deal", "bucket_count", "even_deal", "plain_deal", "weights_of"]

Deal = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]

BUCKETS = 1_024
"""So many are enough that no bucket but one of a heavy key weighs much."""


def bucket_count(shards: int) -> int:
    """Return how many buckets are dealt out: a multiple of the shards, and of powers of two a power of two."""
    return shards * max(1, BUCKETS // shards)


def plain_deal(shards: int) -> Deal:
    return np.arange(shards, dtype=np.int32)


def weights_of(samples: Sequence[Weights]) -> Weights:
    """Return what buckets weigh by the rows that samples from several places have of them.

    Of rows that lie together by key each sample sees a few keys, and none of those in between. So a bucket is known
    when two samples have it, and the rows of all others are taken to be spread over these alike.

    Examples
    --------
    >>> weights_of([np.array([6, 2, 0, 0]), np.array([7, 0, 1, 0])]).tolist()
    [13.0, 1.0, 1.0, 1.0]
    >>> weights_of([np.array([8, 0, 0, 0]), np.array([0, 8, 0, 0])]).tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    seen: Weights = np.sum(samples, axis=0, dtype=np.float64)
    unsure = np.count_nonzero(samples, axis=0) < min(2, len(samples))
    if unsure.any():
        seen[unsure] = np.mean(seen[unsure])
    return seen


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
