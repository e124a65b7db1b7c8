from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch


@pytest.mark.parametrize("kind", [np.uint32, np.int64, np.int32])
@pytest.mark.parametrize("duration", [5, None])
def test_rows_are_taken_by_numbers_of_any_width(kind: type[Any], duration: int | None) -> None:
    sync = np.arange(10, 20)
    batch = Batch(sync, sync + 5 if duration is None else duration, {"x": pl.Series("x", range(10))})
    batch.ids = range(100, 110)
    found = batch.take(np.array([7, 0, 7], kind))
    assert found.sync.tolist() == [17, 10, 17]
    assert found.other.tolist() == [22, 15, 22]
    assert found.columns["x"].to_list() == [7, 0, 7]
    assert found.ids is not None
    assert list(found.ids) == [107, 100, 107]
