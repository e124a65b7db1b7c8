"""Nodes that run a user's own algorithm over whole instants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from squill.plan.codec import Codec
from squill.plan.node import UnaryNode
from squill.plan.properties import Properties
from squill.plan.schema import Schema

__all__ = ["INTERVAL", "LIFETIMES", "POINT", "UNTIL_NEXT", "SnapshotApply", "UserOperator"]

POINT = "point"
INTERVAL = "interval"
UNTIL_NEXT = "until_next"

LIFETIMES: dict[str, Properties] = {
    POINT: Properties(duration=1),
    INTERVAL: Properties(),
    UNTIL_NEXT: Properties(ends_known=False),
}
"""How long the rows of a user's operator live, and what is known of them then."""


@dataclass(frozen=True, kw_only=True)
class _UserNode(UnaryNode):
    """What both have: the columns that the user's code returns after the key columns."""

    function_id: int = 0
    label: str
    output: Schema
    encoded: tuple[tuple[str, Codec], ...] = ()
    keys: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        return self.output

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        keys = {name: codec for name, codec in self.parent.codecs.items() if name in self.keys}
        return {**keys, **dict(self.encoded)}

    @property
    def own(self) -> Schema:
        """The columns that the user's code returns."""
        return self.output.only(name for name in self.output if name not in self.keys)

    def details(self) -> str:
        keys = f", keys=[{', '.join(self.keys)}]" if self.keys else ""
        return self.label + keys


@dataclass(frozen=True, kw_only=True)
class UserOperator(_UserNode):
    """Run an object of the user's for each key: it gets whole instants and returns rows.

    ``make``       makes the object of one key.
    ``lifetime``   how long its rows live, one of `LIFETIMES`.
    ``takes_ends`` whether it is told of events that end; else only of those that start.
    """

    make: Callable[[], Any] = field(compare=False)
    lifetime: str = POINT
    takes_ends: bool = False

    @property
    def name(self) -> str:
        return "operator"

    @cached_property
    def properties(self) -> Properties:
        return LIFETIMES[self.lifetime]


@dataclass(frozen=True, kw_only=True)
class SnapshotApply(_UserNode):
    """Call the user's function with the rows alive at each change point; what it returns lives until the next."""

    function: Callable[..., Any] = field(compare=False)

    @cached_property
    def properties(self) -> Properties:
        return self.parent.properties if self.is_relational else Properties(ends_known=False)
