"""Snapshot aggregates and distinct."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from squill.plan.aggregates import BoundAggregate
from squill.plan.codec import Codec
from squill.plan.confidence import Estimated
from squill.plan.expressions import Expression
from squill.plan.node import UnaryNode
from squill.plan.properties import Properties
from squill.plan.schema import Schema

__all__ = ["Aggregate", "Distinct", "codecs_of_calls"]

TAKEN_OVER = ("first", "last", "collect_list")
"""Aggregates whose values are values of their input."""


@dataclass(frozen=True, kw_only=True)
class Aggregate(UnaryNode):
    """Between two neighbouring change points of a key's alive events, one row of aggregates.

    `calls` are the distinct aggregates, `columns` the outputs as expressions over their placeholders. Those that are
    `estimated` are exact over all rows, and have an interval over a sample.
    """

    keys: tuple[str, ...]
    calls: tuple[BoundAggregate, ...]
    columns: tuple[Expression, ...]
    estimated: tuple[Estimated, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        keys = [(name, self.parent.schema[name]) for name in self.keys]
        return Schema([*keys, *((column.name, column.dtype) for column in self.columns)])

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        before = self.parent.codecs
        made = codecs_of_calls(self.calls, before)
        sources = {column.name: column.source_column for column in self.columns}
        kept = {name: before[name] for name in self.keys if name in before}
        return {
            **kept,
            **{name: made[source] for name, source in sources.items() if source is not None and source in made},
        }

    @cached_property
    def properties(self) -> Properties:
        if self.is_relational:
            return self.parent.properties
        before = self.parent.properties
        return Properties(ends_known=False, window=before.window)

    def details(self) -> str:
        by_placeholder = {call.placeholder: str(call) for call in self.calls}
        shown = []
        estimated = {item.column: item for item in self.estimated}
        for column in self.columns:
            text = column.text
            if column.name in estimated:
                item = estimated[column.name]
                of = ", ".join(by_placeholder[name] for name in item.of)
                uniform = ", uniform=True" if item.uniform else ""
                text = f"ci.{item.kind}({of}, level={item.level:g}{uniform})"
            for placeholder, call in by_placeholder.items():
                text = text.replace(f'col("{placeholder}")', call)
            shown.append(f"{column.name}={text}")
        keys = f"keys=[{', '.join(self.keys)}], " if self.keys else ""
        return keys + ", ".join(shown)


def codecs_of_calls(calls: Iterable[BoundAggregate], before: Mapping[str, Codec]) -> Mapping[str, Codec]:
    """Return, by placeholder, the codecs of aggregates that give Python objects back, or lists of them."""
    taken = [(call.placeholder, call.inputs[0].source_column) for call in calls if call.kind in TAKEN_OVER]
    return {placeholder: before[source] for placeholder, source in taken if source is not None and source in before}


@dataclass(frozen=True, kw_only=True)
class Distinct(UnaryNode):
    """The maximal parts in which at least one equal row is alive."""

    @cached_property
    def properties(self) -> Properties:
        if self.is_relational:
            return self.parent.properties
        return Properties(ends_known=False)
