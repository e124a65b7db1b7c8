"""Rows, and states, in files of this process's own, which are mapped, not read, when they are wanted again.

Such a file has no name. It goes when nobody looks at it any more, and with the process, however that ends: Spark kills
the workers of tasks that it cancels, and the system those that take too much memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import IO

import polars as pl
import pyarrow as pa

from squill.engine.batch import Batch
from squill.engine.columns import values_of
from squill.plan.storable import storable, storable_type

__all__ = ["RowsOnDisk", "mapped_file"]


def mapped_file(write: Callable[[IO[bytes]], object]) -> pa.Buffer:
    """Return what `write` puts into a file of the temporary folder.

    Examples
    --------
    >>> mapped_file(lambda file: file.write(b"much")).to_pybytes()
    b'much'
    """
    with tempfile.TemporaryFile(prefix="squill-") as file:
        write(file)
        file.flush()
        # By its number, as it has no name; what is mapped needs no open file.
        with pa.memory_map(f"/dev/fd/{file.fileno()}") as mapped:
            return mapped.read_buffer()


class RowsOnDisk:
    """The rows of one batch in a file; `batch` is over the mapped file, with numbers of 128 bits still as text.

    The system reads, and forgets, what is looked at.
    """

    def __init__(self, rows: Batch) -> None:
        # By place: no name of ours could meet one of the user's.
        times = [] if rows.is_timeless else [pl.Series("sync", rows.sync), pl.Series("other", rows.other)]
        columns = [storable(series) for series in rows.columns.values()]
        numbered = [series.alias(str(place)) for place, series in enumerate([*times, *columns])]
        frame = pl.DataFrame(numbered).rechunk()
        file = mapped_file(lambda file: frame.write_ipc(file, record_batch_size=max(len(rows), 1)))
        self._types = {
            name: series.dtype for name, series in rows.columns.items() if storable_type(series.dtype) != series.dtype
        }
        self.batch = _mapped(file, list(rows.columns), len(rows), is_timeless=rows.is_timeless)

    def restored(self, rows: Batch) -> Batch:
        """Return rows of `batch` with all columns in their own types."""
        if not self._types:
            return rows
        return rows.with_columns(_cast(rows.columns, self._types))


def _cast(columns: Mapping[str, pl.Series], types: Mapping[str, pl.DataType]) -> dict[str, pl.Series]:
    return {name: series.cast(types.get(name, series.dtype)) for name, series in columns.items()}


def _mapped(file: pa.Buffer, names: list[str], size: int, *, is_timeless: bool) -> Batch:
    table = pa.ipc.open_file(file).read_all()
    series = pl.DataFrame(table).get_columns()
    payload = series if is_timeless else series[2:]
    columns = {name: column.alias(name) for name, column in zip(names, payload, strict=True)}
    if is_timeless:
        return Batch.relational(columns, size)
    return Batch(values_of(series[0]), values_of(series[1]), columns)
