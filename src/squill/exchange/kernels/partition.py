"""Loops that sort rows by their receiver."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["order_by_lane", "partition_rows"]

Array = npt.NDArray[Any]


@kernel
def partition_rows(hashes: Array, lane_of: Array, lane: Array, begin: Array, order: Array) -> None:
    """Order rows by lane, ``lane_of[hash % len(lane_of)]``, with a counting sort; equal lanes keep their order.

    Afterwards the rows of lane l are ``order[begin[l]:begin[l + 1]]``. `lane` is scratch of one int32 per row;
    `begin` has one entry more than there are lanes and comes as zeros.
    """
    shards = np.uint64(len(lane_of))
    mask = shards - np.uint64(1)
    # The division is most of the work, and powers of two, the usual number of shards, need none.
    if shards & mask == 0:
        for i in range(len(hashes)):
            lane[i] = lane_of[hashes[i] & mask]
    else:
        for i in range(len(hashes)):
            lane[i] = lane_of[hashes[i] % shards]
    if len(begin) == 3:
        _order_two(lane, begin, order)
        return
    for i in range(len(hashes)):
        begin[lane[i] + 1] += 1
    for s in range(1, len(begin)):
        begin[s] += begin[s - 1]
    # Filling moves every begin to the next one's place, so they are moved back afterwards.
    for i in range(len(hashes)):
        chosen = lane[i]
        order[begin[chosen]] = i
        begin[chosen] += 1
    for s in range(len(begin) - 1, 0, -1):
        begin[s] = begin[s - 1]
    begin[0] = 0


@inlined
def _order_two(lane: Array, begin: Array, order: Array) -> None:
    """Order rows of two lanes, whose places fit into registers: in memory each row would wait for the one before."""
    seconds = 0
    for i in range(len(lane)):
        seconds += lane[i]
    first, second = np.uint64(0), np.uint64(len(lane) - seconds)
    begin[1], begin[2] = second, len(lane)
    for i in range(len(lane)):
        is_second = np.uint64(lane[i])
        order[second if is_second else first] = i
        second += is_second
        first += np.uint64(1) - is_second


@kernel
def order_by_lane(rows: Array, lanes: Array, begin: Array, order: Array) -> None:
    """Put `rows` into the order of their lanes, which the caller has checked; as above otherwise."""
    for i in range(len(rows)):
        begin[lanes[i] + 1] += 1
    for s in range(1, len(begin)):
        begin[s] += begin[s - 1]
    for i in range(len(rows)):
        chosen = lanes[i]
        order[begin[chosen]] = rows[i]
        begin[chosen] += 1
    for s in range(len(begin) - 1, 0, -1):
        begin[s] = begin[s - 1]
    begin[0] = 0
