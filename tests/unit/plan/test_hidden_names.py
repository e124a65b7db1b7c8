from __future__ import annotations

import pytest

import squill as sq
from squill.errors import PlanError


def test_names_of_columns_that_nobody_sees_may_clash() -> None:
    left = sq.from_frame({"t": [1, 9], "k": [1, 1], "n": [1, 2], "n_right": [3, 4]}, start="t").with_duration(5)
    right = sq.from_frame({"t": [3], "k": [1], "n": [7]}, start="t")
    assert left.clip(right, on="k").collect().rows() == [(1, 3, 1, 1, 3), (9, 14, 1, 2, 4)]
    left_out = left.where_not_exists(right, on="k").collect(sort=True)
    assert left_out.rows() == [(1, 3, 1, 1, 3), (4, 6, 1, 1, 3), (9, 14, 1, 2, 4)]
    with pytest.raises(PlanError, match="two columns would be called 'n_right'"):
        left.where_exists(right, on="k", where=sq.col("n") > 0)
