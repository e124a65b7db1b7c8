from __future__ import annotations

import numpy as np
import pytest

from squill.exchange.kernels.partition import order_by_lane, place_by_lane


@pytest.mark.parametrize(
    ("shards", "divisor", "modulus"), [(1, 1, 1), (2, 1, 2), (3, 1, 3), (64, 8, 8), (64, 1, 8), (1_000, 1, 1_000)]
)
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_rows_are_placed_by_lane_and_then_as_they_were(rows: int, shards: int, divisor: int, modulus: int) -> None:
    hashes = np.random.default_rng(rows).integers(0, 2**64, rows, np.uint64)
    begin, places = np.zeros(modulus + 1, np.int64), np.empty(rows, np.uint32)
    lane_of = (np.arange(shards) // divisor % modulus).astype(np.int32)
    place_by_lane(hashes, lane_of, begin, places)
    lanes = hashes % np.uint64(shards) // np.uint64(divisor) % np.uint64(modulus)
    assert np.argsort(places).tolist() == np.argsort(lanes, kind="stable").tolist()
    assert sorted(places.tolist()) == list(range(rows))
    assert begin.tolist() == np.searchsorted(np.sort(lanes), np.arange(modulus + 1)).tolist()


@pytest.mark.parametrize("pairs", [0, 1, 500])
def test_pairs_are_ordered_by_lane_and_then_as_they_were(pairs: int) -> None:
    random = np.random.default_rng(pairs)
    rows, lanes = np.sort(random.integers(0, 100, pairs)), random.integers(0, 7, pairs)
    begin, order = np.zeros(8, np.int64), np.empty(pairs, np.uint32)
    order_by_lane(rows, lanes, begin, order)
    assert order.tolist() == rows[np.argsort(lanes, kind="stable")].tolist()
    assert begin.tolist() == np.searchsorted(np.sort(lanes), np.arange(8)).tolist()
