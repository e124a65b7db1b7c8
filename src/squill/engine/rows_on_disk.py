"""Rows in files of this process's own, which are mapped, not read, when they are wanted again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa

from squill.engine.batch import Batch
from squill.engine.columns import values_of
from squill.plan.storable import storable, storable_type

__all__ = ["RowsOnDisk"]


class RowsOnDisk:
    """The rows of one batch in a file; `batch` is over the mapped file, with numbers of 128 bits still as text.

    The system reads, and forgets, what is looked at.
    """

    def __init__(self, path: Path, rows: Batch) -> None:
        self.path = path
        # By place: no name of ours could meet one of the user's.
        times = [] if rows.is_timeless else [pl.Series("sync", rows.sync), pl.Series("other", rows.other)]
        columns = [storable(series) for series in rows.columns.values()]
        numbered = [series.alias(str(place)) for place, series in enumerate([*times, *columns])]
        pl.DataFrame(numbered).rechunk().write_ipc(path, record_batch_size=max(len(rows), 1))
        self._types = {
            name: series.dtype for name, series in rows.columns.items() if storable_type(series.dtype) != series.dtype
        }
        self.batch = _mapped(path, list(rows.columns), len(rows), is_timeless=rows.is_timeless)

    def restored(self, rows: Batch) -> Batch:
        """Return rows of `batch` with all columns in their own types."""
        if not self._types:
            return rows
        return rows.with_columns(_cast(rows.columns, self._types))

    def remove(self) -> None:
        """Remove the name; who looks at the rows still can."""
        self.path.unlink(missing_ok=True)


def _cast(columns: Mapping[str, pl.Series], types: Mapping[str, pl.DataType]) -> dict[str, pl.Series]:
    return {name: series.cast(types.get(name, series.dtype)) for name, series in columns.items()}


def _mapped(path: Path, names: list[str], size: int, *, is_timeless: bool) -> Batch:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    series = pl.DataFrame(table).get_columns()
    payload = series if is_timeless else series[2:]
    columns = {name: column.alias(name) for name, column in zip(names, payload, strict=True)}
    if is_timeless:
        return Batch.relational(columns, size)
    return Batch(values_of(series[0]), values_of(series[1]), columns)
