"""Nodes that change payloads and leave lifetimes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import polars as pl

from squill.plan.codec import Codec
from squill.plan.expressions import Expression
from squill.plan.node import UnaryNode
from squill.plan.schema import Schema

__all__ = ["MapBatches", "Select", "SelectMany", "Where"]


@dataclass(frozen=True, kw_only=True)
class Where(UnaryNode):
    """Keep the events for which `predicate` is true; null is not true."""

    keeps_state: ClassVar[bool] = False

    predicate: Expression


@dataclass(frozen=True, kw_only=True)
class Select(UnaryNode):
    """Give each event new columns; also what with_columns, drop and rename become."""

    keeps_state: ClassVar[bool] = False

    columns: tuple[Expression, ...]

    @cached_property
    def schema(self) -> Schema:
        return Schema((column.name, column.dtype) for column in self.columns)

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        kept = {column.name: column.source_column for column in self.columns if column.source_column is not None}
        before = self.parent.codecs
        return {name: before[source] for name, source in kept.items() if source in before}


@dataclass(frozen=True, kw_only=True)
class SelectMany(UnaryNode):
    """Turn each event into as many as `column` has list items; an empty list makes it vanish."""

    keeps_state: ClassVar[bool] = False

    column: str

    @cached_property
    def schema(self) -> Schema:
        columns = dict(self.parent.schema)
        dtype = columns[self.column]
        assert isinstance(dtype, (pl.List, pl.Array))
        columns[self.column] = dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()
        return Schema(columns)


@dataclass(frozen=True, kw_only=True)
class MapBatches(UnaryNode):
    """Run the user's row-wise Python: a function of a frame, or with `many` a function of a row that returns rows."""

    function: Callable[..., Any] = field(compare=False)
    function_id: int = 0
    output: Schema
    encoded: tuple[tuple[str, Codec], ...] = ()
    many: bool = False
    keys: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        return self.output

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        keys = {name: codec for name, codec in self.parent.codecs.items() if name in self.keys}
        return {**keys, **dict(self.encoded)}
