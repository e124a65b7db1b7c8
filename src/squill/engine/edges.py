"""Start edges and end edges folded to intervals, once everything is there."""

from __future__ import annotations

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.engine.kernels.edges import NONE, match_edges
from squill.engine.key_table import KeyTable
from squill.engine.row_order import as_binary, encode_rows
from squill.errors import InternalError
from squill.time import INFINITY

__all__ = ["fold_edges", "row_keys"]


def row_keys(batch: Batch, *, starts: bool = True) -> pl.Series:
    """Return one byte string per row that is equal for equal (start and) payload."""
    columns = list(batch.columns.values())
    if starts:
        columns = [pl.Series("start", np.minimum(batch.sync, batch.other)), *columns]
    if not columns:
        return pl.Series("row", [b""] * len(batch), pl.Binary())
    return as_binary(*encode_rows(columns))


def fold_edges(batch: Batch) -> Batch:
    """Return the rows as intervals; a start edge that nothing ends is endless."""
    is_end = batch.other < batch.sync
    if not is_end.any():
        return batch
    edges = np.flatnonzero(is_end | (batch.other == INFINITY))
    chosen = batch.take(edges)
    table = KeyTable([pl.Binary()])
    slots = table.slots([row_keys(chosen)])
    ends = chosen.other.copy()
    first, last = np.full(table.capacity, NONE, np.int64), np.full(table.capacity, NONE, np.int64)
    bad = match_edges(chosen.sync, chosen.other, slots, first, last, np.full(len(edges), NONE, np.int64), ends)
    if bad != NONE:
        raise InternalError(f"an end edge at {chosen.sync[bad]} ends no event")
    other = batch.other.copy()
    other[edges] = ends
    return Batch(batch.sync, other, batch.columns).filter(~is_end)
