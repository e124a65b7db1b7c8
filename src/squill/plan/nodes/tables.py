"""Rows that are brought before a plan runs: those of a Spark DataFrame, or of another cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from squill.plan.nodes.sources import FileSource, GivenSource

__all__ = ["CachedSource", "ElsewhereSource", "SpooledSource", "TableSource"]


@dataclass(frozen=True, kw_only=True)
class TableSource(FileSource):
    """A table of a runtime's own, which brings its rows into files before the plan runs.

    Columns and filters are pushed down to it as to files.
    """

    table: Any = field(compare=False)
    table_id: int

    def details(self) -> str:
        return FileSource.details(self).replace(f"{self.format} 0 files", "table")


@dataclass(frozen=True, kw_only=True)
class CachedSource(TableSource):
    """A dataset in a runtime's own memory: what is in the table is its business, what there is says `stored`."""


@dataclass(frozen=True, kw_only=True)
class SpooledSource(FileSource):
    """Rows of another input in files that a run has written itself, which nobody else knows."""

    names_files: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ElsewhereSource(GivenSource):
    """Rows that live on another cluster, which brings them before the plan runs."""

    stream: Any = field(compare=False)
    stream_id: int
