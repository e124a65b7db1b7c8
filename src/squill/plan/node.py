"""The base of all plan nodes: immutable data that knows its schema, its time and its properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

from squill.plan.codec import Codec
from squill.plan.expressions import Expression, Scope
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import TimeType

__all__ = ["Node", "UnaryNode", "walk"]


@dataclass(frozen=True, kw_only=True, eq=True)
class Node:
    """One step of a query. It never runs: the engine has an operator for each kind of node.

    ``schema``      the payload columns it gives.
    ``time``        the type of its times; None for relational data, alive at every instant.
    ``properties``  what is known of its lifetimes.
    """

    keeps_state: ClassVar[bool] = True
    """False when every row is handled by itself, so that batches may be as large as memory likes."""
    may_change: ClassVar[tuple[str, ...]] = ()
    """Fields that may be others when saved state is gone on with."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        raise NotImplementedError

    @cached_property
    def schema(self) -> Schema:
        raise NotImplementedError

    @cached_property
    def time(self) -> TimeType | None:
        raise NotImplementedError

    @cached_property
    def properties(self) -> Properties:
        raise NotImplementedError

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        """The columns that stand for Python objects; in the engine they are Binary."""
        return {}

    @property
    def is_relational(self) -> bool:
        return self.time is None

    @cached_property
    def scope(self) -> Scope:
        """What expressions over this node's output may name."""
        return Scope(self.schema, self.time, self.properties.ends_known)

    @property
    def name(self) -> str:
        """The node's kind in the words of the API: ``hopping_window`` for `HoppingWindow`."""
        words = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)
        return words.lstrip("_")

    def details(self) -> str:
        """Return the arguments for `explain`; inputs and empty fields are left out."""
        shown = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Node) or value is None or value == () or entry.name == "parents":
                continue
            if entry.name.endswith("_id"):  # an address, which tells nobody anything
                continue
            shown.append(f"{entry.name}={_show(value)}")
        return ", ".join(shown)


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    if isinstance(value, (str, Expression)):
        return str(value)
    return getattr(value, "__name__", None) or str(value)


@dataclass(frozen=True, kw_only=True, eq=True)
class UnaryNode(Node):
    """A node with one input; schema, time and properties are its parent's unless it says otherwise."""

    parent: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.parent,)

    @cached_property
    def schema(self) -> Schema:
        return self.parent.schema

    @cached_property
    def time(self) -> TimeType | None:
        return self.parent.time

    @cached_property
    def properties(self) -> Properties:
        return self.parent.properties

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return {name: codec for name, codec in self.parent.codecs.items() if name in self.schema}


def walk(node: Node) -> Iterator[Node]:
    """Yield every node below and including `node`, each once, inputs before their consumers."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            yield current
        elif id(current) not in seen:
            seen.add(id(current))
            stack.append((current, True))
            stack.extend((parent, False) for parent in reversed(current.inputs))
