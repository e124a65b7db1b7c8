"""Rows that only a runtime can bring, such as those of a Spark DataFrame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from squill.plan.nodes.sources import FileSource

__all__ = ["TableSource"]


@dataclass(frozen=True, kw_only=True)
class TableSource(FileSource):
    """A table of a runtime's own, which brings its rows into files before the plan runs.

    Columns and filters are pushed down to it as to files.
    """

    table: Any = field(compare=False)
    table_id: int

    def details(self) -> str:
        return FileSource.details(self).replace(f"{self.format} 0 files", "table")
