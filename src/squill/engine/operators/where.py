"""Where: keep the rows for which a predicate is true."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.batch import Batch
from squill.engine.columns import series_from, valid_of, values_of
from squill.engine.comparisons import Comparison
from squill.engine.expressions import Evaluator
from squill.engine.operator import Operator, register
from squill.plan.nodes import Where

__all__ = ["WhereOperator"]

LARGE = 16_384
"""From here on one Polars call over all columns beats one copy per column."""


@register(Where)
class WhereOperator(Operator):
    """Both edges of an event see the same payload, so both pass or neither does."""

    demands = None

    def __init__(self, node: Where) -> None:
        super().__init__(node)
        self._predicate = Evaluator([node.predicate], node.parent.time, "where")
        self._comparison = Comparison.of(node.predicate)

    def push(self, batch: Batch, port: int = 0) -> None:
        mask = self._comparison(batch.columns) if self._comparison is not None else None
        if mask is None:
            (mask,) = self._predicate(batch).values()
        self.emit(_kept_by_polars(batch, mask) if len(batch) >= LARGE else _kept(batch, mask))


def _kept(batch: Batch, mask: pl.Series) -> Batch:
    keep = values_of(mask).view(np.bool_)
    if mask.null_count():
        keep = keep & valid_of(mask).view(np.bool_)
    return batch.filter(keep)


def _kept_by_polars(batch: Batch, mask: pl.Series) -> Batch:
    if mask.all(ignore_nulls=False):
        return batch
    times: dict[str, npt.NDArray[np.int64]] = {} if batch.is_timeless else {"sync": batch.sync}
    if batch.duration is None:
        times["other"] = batch.other
    if batch.ids is not None:
        times["ids"] = np.asarray(batch.ids)
    # Numbered, so that no payload column can have the name of a time.
    named = [series.alias(str(number)) for number, series in enumerate(batch.columns.values())]
    whole = [*(series_from(name, array, None, pl.Int64()) for name, array in times.items()), *named]
    kept = pl.DataFrame(whole).filter(mask)
    columns = {name: kept[str(number)].alias(name) for number, name in enumerate(batch.columns)}
    if batch.is_timeless:
        return Batch.relational(columns, kept.height)
    other = values_of(kept["other"]) if batch.duration is None else batch.duration
    return Batch(values_of(kept["sync"]), other, columns, None if batch.ids is None else values_of(kept["ids"]))
