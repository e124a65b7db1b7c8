"""Equal rows cancel: what an operator promised for later and takes back before it is due."""

from __future__ import annotations

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.edges import row_keys
from squill.engine.key_table import KeyTable

__all__ = ["without_cancelled"]


def without_cancelled(rows: Batch | None, cancelled: Batch | None) -> Batch | None:
    """Return `rows` less one equal row (times and payload) for each row of `cancelled`."""
    if rows is None or cancelled is None:
        return rows
    together = Batch.concat([rows, cancelled])
    table = KeyTable([pl.Int64(), pl.Int64(), pl.Binary()])
    keys = [pl.Series("sync", together.sync), pl.Series("other", together.other), row_keys(together, starts=False)]
    slots = table.slots(keys)
    taken = np.bincount(slots[len(rows) :], minlength=table.capacity)
    own = slots[: len(rows)]
    order = np.argsort(own, kind="stable")
    first = np.searchsorted(own[order], own[order])
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - first
    return rows.filter(rank >= taken[own])
