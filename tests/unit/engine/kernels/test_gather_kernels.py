from __future__ import annotations

import numpy as np

from squill.engine.kernels.gather import words_at


def test_rows_are_written_one_after_the_other() -> None:
    values = np.array([10, 11, 12, 13])
    values.flags.writeable = False
    rows, out = np.array([3, 0, 0, 2], np.uint32), np.empty(4, np.int64)
    words_at(values, rows, out)
    assert out.tolist() == [13, 10, 10, 12]
