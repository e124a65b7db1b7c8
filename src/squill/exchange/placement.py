"""Who receives a row: the hash of its key decides, and nothing else.

A row's receiver depends on its values only, never on arrival or chance, so a retried task places every row as
before, and both edges of an event meet on one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from squill.engine.batch import Batch
from squill.engine.hashing import HASH_VERSION, hash_columns
from squill.errors import InternalError
from squill.exchange.kernels.partition import partition_rows
from squill.plan.placement import Placement

__all__ = ["HashPartitioner"]


class HashPartitioner:
    """Takes batches apart by receiver, keeping the order of rows.

    Examples
    --------
    >>> times = np.arange(6)
    >>> batch = Batch(times, times + 1, {"k": pl.Series([7, 8, 7, 9, 8, 7])})
    >>> parts = HashPartitioner(Placement(keys=("k",), shards=3))(batch)
    >>> {receiver: part.columns["k"].to_list() for receiver, part in parts}
    {0: [7, 7, 7], 1: [8, 9, 8]}
    """

    def __init__(self, placement: Placement) -> None:
        if placement.hash_version != HASH_VERSION:
            raise InternalError(f"placement {placement} is not of hash version {HASH_VERSION}")
        self._keys: Sequence[str] = placement.keys
        self._shards = placement.shards

    def __call__(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Yield (receiver, its rows) for each receiver that gets any."""
        if self._shards == 1:
            yield 0, batch
            return
        hashes = hash_columns([batch.columns[name] for name in self._keys])
        begin = np.zeros(self._shards + 1, np.int64)
        order = np.empty(len(batch), np.uint32)
        partition_rows(hashes, np.uint64(self._shards), np.empty(len(batch), np.int32), begin, order)
        in_order = batch.take(order)
        for receiver in range(self._shards):
            low, high = int(begin[receiver]), int(begin[receiver + 1])
            if high > low:
                yield receiver, in_order.slice(low, high)
