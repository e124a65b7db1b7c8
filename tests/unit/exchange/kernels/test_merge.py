from __future__ import annotations

import numpy as np
import pytest

from squill.exchange.kernels.merge import merge_neighbours


@pytest.mark.parametrize(
    ("times", "bounds", "expected"),
    [
        ([1, 4, 2, 4, 0], [0, 2, 4, 5], [0, 2, 1, 3, 4]),
        ([5, 6, 1, 2], [0, 2, 4], [2, 3, 0, 1]),
        ([7, 7, 7, 7], [0, 1, 2, 3, 4], [0, 1, 2, 3]),
        ([3, 1], [0, 0, 1, 1, 2], [0, 1]),
        ([1, 2], [0, 2], [0, 1]),
        ([], [0, 0, 0], []),
    ],
)
def test_neighbouring_runs_become_one(times: list[int], bounds: list[int], expected: list[int]) -> None:
    rows = np.arange(len(times), dtype=np.uint32)
    new_times, new_rows = np.empty(len(times), np.int64), np.empty_like(rows)
    merge_neighbours(np.array(times, np.int64), rows, np.array(bounds), new_times, new_rows)
    assert new_rows.tolist() == expected
    assert new_times.tolist() == [times[row] for row in expected]
