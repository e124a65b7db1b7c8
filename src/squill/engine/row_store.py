"""Payloads that are kept for later, addressed by place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt
import polars as pl

from squill.engine.columns import taken, taken_or_null
from squill.engine.operator import OperatorState

__all__ = ["RowStore"]

Array = npt.NDArray[Any]
SLACK = 16_384
"""How many dead rows are put up with before the store is worth compacting."""


class RowStore:
    """Columns that grow at the end; dead rows stay until `keep` throws them out.

    Examples
    --------
    >>> store = RowStore({"x": pl.String()})
    >>> store.append({"x": pl.Series("x", ["a", "b", "c"])})
    0
    >>> import numpy as np
    >>> store.gather(np.array([2, 0]))["x"].to_list()
    ['c', 'a']
    >>> store.keep(np.array([1]))
    >>> store.gather(np.array([0]))["x"].to_list()
    ['b']
    """

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self._columns = {name: pl.Series(name, [], dtype) for name, dtype in types.items()}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, columns: Mapping[str, pl.Series], size: int | None = None) -> int:
        """Put rows at the end; returns the place of the first."""
        first = self._size
        added = size if size is not None else 0
        for name, column in self._columns.items():
            column.extend(columns[name])
            added = len(columns[name])
        self._size += added
        return first

    def gather(self, places: Array, names: Iterable[str] | None = None) -> dict[str, pl.Series]:
        """Return the rows at these places, of all columns or of those named."""
        chosen = self._columns if names is None else {name: self._columns[name] for name in names}
        return taken(chosen, places)

    def column(self, name: str) -> pl.Series:
        """Return all rows of a column, dead ones too; it is not for keeping."""
        return self._columns[name]

    def gather_or_null(self, places: Array) -> dict[str, pl.Series]:
        """Return the rows at these places, nulls for −1."""
        return taken_or_null(self._columns, places)

    def is_wasteful(self, live: int) -> bool:
        """True when most rows are dead, `live` of them being alive."""
        return self._size > 2 * live + SLACK

    def keep(self, places: Array) -> None:
        """Keep just these rows; the i-th of them is at place i from now on."""
        self._columns = self.gather(places)
        self._size = len(places)

    def save(self) -> OperatorState:
        # No clones: while one lives, the next extend copies the whole column.
        return {"columns": dict(self._columns), "size": self._size}

    def load(self, state: OperatorState) -> None:
        self._columns = {name: column.clone() for name, column in state["columns"].items()}
        self._size = state["size"]
