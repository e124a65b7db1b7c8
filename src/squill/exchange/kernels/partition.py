"""Loops that sort rows by their receiver."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["order_by_lane", "place_by_lane"]

Array = npt.NDArray[Any]


@kernel
def place_by_lane(hashes: Array, lane_of: Array, begin: Array, places: Array) -> None:
    """Say where each row stands in the order of lanes, ``lane_of[hash % len(lane_of)]``, with a counting sort.

    Rows of equal lanes keep their order. Afterwards those of lane l are at the places begin[l] to begin[l + 1]; `begin`
    has one entry more than there are lanes and comes as zeros.
    """
    shards = np.uint64(len(lane_of))
    mask = shards - np.uint64(1)
    # The division is most of the work, and powers of two, the usual number of shards, need none.
    if shards & mask == 0:
        for i in range(len(hashes)):
            places[i] = lane_of[hashes[i] & mask]
    else:
        for i in range(len(hashes)):
            places[i] = lane_of[hashes[i] % shards]
    if len(begin) == 3:
        _place_two(begin, places)
        return
    for i in range(len(hashes)):
        begin[places[i] + 1] += 1
    for s in range(1, len(begin)):
        begin[s] += begin[s - 1]
    # Filling moves every begin to the next one's place, so they are moved back afterwards.
    for i in range(len(hashes)):
        chosen = places[i]
        places[i] = begin[chosen]
        begin[chosen] += 1
    for s in range(len(begin) - 1, 0, -1):
        begin[s] = begin[s - 1]
    begin[0] = 0


@inlined
def _place_two(begin: Array, places: Array) -> None:
    """Place rows of two lanes, whose ends fit into registers: in memory each row would wait for the one before."""
    seconds = 0
    for i in range(len(places)):
        seconds += places[i]
    first, second = np.uint64(0), np.uint64(len(places) - seconds)
    begin[1], begin[2] = second, len(places)
    for i in range(len(places)):
        is_second = np.uint64(places[i])
        places[i] = second if is_second else first
        second += is_second
        first += np.uint64(1) - is_second


@kernel
def order_by_lane(rows: Array, lanes: Array, begin: Array, order: Array) -> None:
    """Put `rows`, of which some may stand there twice, into the order of their lanes, which the caller has checked.

    Afterwards the rows of lane l are ``order[begin[l]:begin[l + 1]]``; `begin` comes as above.
    """
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
