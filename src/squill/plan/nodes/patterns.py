"""Nodes that look at the order of events: patterns, pairs, sessions from a start event to an end event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from squill.plan.codec import Codec
from squill.plan.expressions import Expression
from squill.plan.node import UnaryNode
from squill.plan.properties import Properties
from squill.plan.schema import Schema

__all__ = [
    "ConsecutivePairs", "Detect", "Element", "FunctionCall", "PatternTree", "Register", "Sessionize", "right_name",
]  # fmt: skip

REGISTER, COLUMN, START_TICKS = "register", "column", "start"


@dataclass(frozen=True)
class FunctionCall:
    """A user's function and what its parameters stand for: (register | column | start, name) each."""

    function: Callable[..., Any]
    arguments: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{getattr(self.function, '__name__', 'function')}({', '.join(name for _, name in self.arguments)})"


@dataclass(frozen=True)
class Element:
    """What takes one event (`scope` one) or all events of an instant (any, none), and what it does to registers."""

    scope: str
    condition: Expression | None
    tests: tuple[FunctionCall, ...]
    updates: tuple[tuple[str, Expression | FunctionCall], ...]

    def __str__(self) -> str:
        conditions = [] if self.condition is None else [_expression_text(self.condition)]
        conditions += [str(test) for test in self.tests]
        for name, update in self.updates:
            text = _expression_text(update) if isinstance(update, Expression) else str(update)
            conditions.append(f"{name}={text}")
        return f"{self.scope}({', '.join(conditions)})"


def _expression_text(expression: Expression) -> str:
    return str(expression).partition("=")[2] or str(expression)


@dataclass(frozen=True)
class PatternTree:
    """How elements are combined: seq, alt, star, plus or opt of parts, or the element of a number."""

    kind: str
    parts: tuple[PatternTree, ...] = ()
    element: int = -1


@dataclass(frozen=True)
class Register:
    """A value that a match carries, its type, and what it is before the first event."""

    name: str
    dtype: pl.DataType
    initial: Any


@dataclass(frozen=True, kw_only=True)
class Detect(UnaryNode):
    """Per key, every match of a pattern: its registers, alive from its last event until `within` after its first."""

    elements: tuple[Element, ...]
    tree: PatternTree
    registers: tuple[Register, ...]
    within: int | None
    overlap: bool
    order_by: tuple[Expression, ...] | None
    keys: tuple[str, ...]

    @cached_property
    def schema(self) -> Schema:
        keys = [(name, self.parent.schema[name]) for name in self.keys]
        return Schema([*keys, *((register.name, register.dtype) for register in self.registers)])

    @cached_property
    def properties(self) -> Properties:
        return Properties(endless=self.within is None)

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        before = self.parent.codecs
        kept = {name: before[name] for name in self.keys if name in before}
        for element in self.elements:
            for name, update in element.updates:
                source = update.source_column if isinstance(update, Expression) else None
                if source is not None and source in before:
                    kept[name] = before[source]
        return kept

    def details(self) -> str:
        shown = [f"pattern={self._text(self.tree)}"]
        if self.registers:
            shown.append(f"registers=[{', '.join(f'{item.name}={item.initial!r}' for item in self.registers)}]")
        if self.within is not None:
            shown.append(f"within={self.within}")
        if not self.overlap:
            shown.append("overlap=False")
        if self.order_by is not None:
            shown.append(f"order_by=[{', '.join(map(_expression_text, self.order_by))}]")
        if self.keys:
            shown.append(f"keys=[{', '.join(self.keys)}]")
        return ", ".join(shown)

    def _text(self, tree: PatternTree) -> str:
        if tree.kind == "element":
            return str(self.elements[tree.element])
        return f"{tree.kind}({', '.join(self._text(part) for part in tree.parts)})"


def right_name(name: str) -> str:
    """Return what a column of the second event of a pair is called."""
    return f"{name}_right"


@dataclass(frozen=True, kw_only=True)
class PairNode(UnaryNode):
    """Two events of one key side by side: its key columns once, then the others of both, those of the second `_right`.

    All lifetimes are points at the second event.
    """

    keys: tuple[str, ...]

    @cached_property
    def others(self) -> tuple[str, ...]:
        return tuple(name for name in self.parent.schema if name not in self.keys)

    @cached_property
    def schema(self) -> Schema:
        types = self.parent.schema
        left = [(name, types[name]) for name in (*self.keys, *self.others)]
        return Schema([*left, *((right_name(name), types[name]) for name in self.others)])

    @cached_property
    def properties(self) -> Properties:
        return Properties(duration=1)

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        before = self.parent.codecs
        right = {right_name(name): codec for name, codec in before.items() if name not in self.keys}
        return {**before, **right}


@dataclass(frozen=True, kw_only=True)
class ConsecutivePairs(PairNode):
    """Every event with its immediate successor, where `first` and `second` are true of them and they are close."""

    first: Expression | None
    second: Expression | None
    within: int | None
    order_by: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class Sessionize(PairNode):
    """Every start event with the first end event after it."""

    is_start: Expression
    is_end: Expression
