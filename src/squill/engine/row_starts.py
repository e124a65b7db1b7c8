"""The starts of rows, as far as they put rows in an order."""

from __future__ import annotations

import numpy as np

from squill.engine.batch import Batch, Int64s, before_time
from squill.time import TimeType

__all__ = ["row_starts"]


def row_starts(batch: Batch, time: TimeType | None) -> Int64s:
    """Return when each row began; minus infinity for all where time is progress, as if the rows were relational."""
    if time is not None and not time.orders_rows:
        return before_time(len(batch))
    return np.minimum(batch.sync, batch.other)
