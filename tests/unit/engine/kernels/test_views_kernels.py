"""Views are followed to their bytes. Run again with NUMBA_BOUNDSCHECK=1."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from squill.engine.columns import read_only
from squill.engine.kernels.views import view_ranges


def test_views_say_where_their_bytes_lie() -> None:
    rows = [b"twelve bytes", b"thirteen byte", None, b"", b"more than thirteen bytes"]
    array = pa.array(rows, pa.binary_view())
    _, views, data = array.buffers()
    valid = read_only(np.array([1, 1, 0, 1, 1], np.uint8))
    starts, lengths = np.empty(5, np.int64), np.empty(5, np.int64)
    view_ranges(np.frombuffer(views, np.int64), valid, 1_000, np.array([5_000]), starts, lengths)
    assert lengths.tolist() == [12, 13, 0, 0, 24]
    assert starts.tolist() == [1_004, 5_000, 1_036, 1_052, 5_013]
    assert bytes(data)[13:37] == rows[4]


def test_view_under_a_null_is_not_followed() -> None:
    garbage = read_only(np.full(2, -1, np.int64))
    starts, lengths = np.empty(1, np.int64), np.empty(1, np.int64)
    view_ranges(garbage, read_only(np.zeros(1, np.uint8)), 0, np.empty(0, np.int64), starts, lengths)
    assert lengths.tolist() == [0]
