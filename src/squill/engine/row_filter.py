"""Keep the rows of a batch for which a predicate is true; null is not true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch, Instant
from squill.engine.columns import series_from, valid_of, values_of
from squill.engine.comparisons import Comparison
from squill.engine.expressions import Evaluator
from squill.plan.expressions import Expression
from squill.time import TimeType

__all__ = ["RowFilter"]

LARGE = 16_384
"""From here on Polars' filter beats ours."""


class RowFilter:
    """Applies one predicate to batches; their rows need not be in order.

    ``payload``  the columns that rows have afterwards, where the predicate needs others too; all unless told.
    """

    def __init__(self, predicate: Expression, time: TimeType | None, payload: Sequence[str] | None = None) -> None:
        self._predicate = Evaluator([predicate], time, "where")
        self._comparison = Comparison.of(predicate)
        self._payload = payload

    def __call__(self, batch: Batch) -> Batch:
        """Return the rows that stay, in the order they stand; the batch itself when all of them do."""
        if self._comparison is not None and len(batch) < LARGE:
            keep = self._comparison.mask(batch.columns)
            if keep is not None:
                return self._shown(batch).filter(keep)
        mask = self._comparison(batch.columns) if self._comparison is not None else None
        if mask is None:
            (mask,) = self._predicate(batch).values()
        shown = self._shown(batch)
        return _kept_by_polars(shown, mask) if len(batch) >= LARGE else _kept(shown, mask)

    def _shown(self, batch: Batch) -> Batch:
        if self._payload is None:
            return batch
        shown = batch.with_columns({name: batch.columns[name] for name in self._payload})
        shown.is_ordered = batch.is_ordered
        return shown


def _kept(batch: Batch, mask: pl.Series) -> Batch:
    keep = values_of(mask).view(np.bool_)
    if mask.null_count():
        keep = keep & valid_of(mask).view(np.bool_)
    return batch.filter(keep)


def _kept_by_polars(batch: Batch, mask: pl.Series) -> Batch:
    if mask.all(ignore_nulls=False):
        return batch
    # Column by column: a filter of a frame is a query, and with one thread Polars starts one in milliseconds.
    columns = {name: series.filter(mask) for name, series in batch.columns.items()}
    if batch.is_timeless:
        return Batch.relational(columns, int(mask.sum()))

    def kept(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return values_of(series_from("", values, None, pl.Int64()).filter(mask))

    other = kept(batch.other) if batch.duration is None else batch.duration
    # Rows of one step have one time, which need not be looked through.
    is_instant = batch.is_ordered and batch.first_sync == batch.last_sync
    sync = Instant(batch.first_sync, int(mask.sum())) if is_instant else kept(batch.sync)
    rows = Batch(sync, other, columns, None if batch.ids is None else kept(np.asarray(batch.ids)))
    rows.is_ordered = batch.is_ordered
    return rows
