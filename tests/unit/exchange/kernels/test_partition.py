from __future__ import annotations

import numpy as np
import pytest

from squill.exchange.kernels.partition import partition_rows


@pytest.mark.parametrize("shards", [1, 2, 3, 64, 1_000])
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_rows_are_ordered_by_receiver_and_then_as_they_were(rows: int, shards: int) -> None:
    hashes = np.random.default_rng(rows).integers(0, 2**64, rows, np.uint64)
    begin, order = np.zeros(shards + 1, np.int64), np.empty(rows, np.uint32)
    partition_rows(hashes, np.uint64(shards), np.empty(rows, np.int32), begin, order)
    receivers = hashes % np.uint64(shards)
    assert order.tolist() == np.argsort(receivers, kind="stable").tolist()
    assert begin.tolist() == np.searchsorted(np.sort(receivers), np.arange(shards + 1)).tolist()
