"""Nodes that relate the events of a left input to those of a right one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from squill.plan.codec import Codec
from squill.plan.expressions import Expression
from squill.plan.matching import Matching
from squill.plan.node import Node
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import TimeType

__all__ = ["AsofJoin", "ClipByStream", "Exists", "Join", "TwoInputs"]


@dataclass(frozen=True, kw_only=True)
class TwoInputs(Node):
    """Base: a left and a right input, and how their rows find each other."""

    left: Node
    right: Node
    matching: Matching

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @cached_property
    def time(self) -> TimeType | None:
        return self.left.time if self.left.time is not None else self.right.time

    @cached_property
    def pair_schema(self) -> Schema:
        """The columns of a pair: the left ones, then those of the right that are not keys of both."""
        right = {name: self.right.schema[source] for name, source in self.matching.right_as}
        return Schema({**self.left.schema, **right})

    @cached_property
    def pair_codecs(self) -> Mapping[str, Codec]:
        right = self.right.codecs
        renamed = {name: right[source] for name, source in self.matching.right_as if source in right}
        return {**self.left.codecs, **renamed}


@dataclass(frozen=True, kw_only=True)
class Join(TwoInputs):
    """Every pair that matches, alive where both are; outer joins add the unmatched parts with nulls.

    ``by_step``  of a progressive query: that rows are alive at one step each, and meet only those of their own. It says
                 which input has the same rows at all steps instead: "left", "right" or "none".
    ``table``    of two relations the one that the rows of the other are looked up in, "left" or "right"; None leaves it
                 to who runs the plan. It is no part of what the plan means.
    """

    may_change: ClassVar[tuple[str, ...]] = ("table",)

    how: str = "inner"
    by_step: str | None = None
    table: str | None = None

    @cached_property
    def schema(self) -> Schema:
        return self.pair_schema

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return self.pair_codecs

    @cached_property
    def properties(self) -> Properties:
        left, right = self.left.properties, self.right.properties
        if self.by_step is not None:
            return Properties(duration=1)
        if self.how in ("inner", "cross"):
            if self.right.is_relational:
                return left
            if self.left.is_relational:
                return right
            if left.ends_known and right.ends_known:
                return Properties(endless=left.endless and right.endless)
        return Properties(ends_known=False)


@dataclass(frozen=True, kw_only=True)
class Exists(TwoInputs):
    """The maximal parts of left lifetimes in which a match is alive; `negated`: in which none is."""

    negated: bool = False

    @cached_property
    def schema(self) -> Schema:
        return self.left.schema

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return self.left.codecs

    @cached_property
    def properties(self) -> Properties:
        return self.left.properties if self.right.is_relational else Properties(ends_known=False)


@dataclass(frozen=True, kw_only=True)
class AsofJoin(TwoInputs):
    """Each left event with the latest right event of its key that began no later than it did."""

    tolerance: int | None = None
    order_by: tuple[Expression, ...] = ()
    how: str = "left"

    @cached_property
    def schema(self) -> Schema:
        return self.pair_schema

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return self.pair_codecs

    @cached_property
    def properties(self) -> Properties:
        return self.left.properties


@dataclass(frozen=True, kw_only=True)
class ClipByStream(TwoInputs):
    """end := min(end, the first start of a matching right event after the left start)."""

    @cached_property
    def schema(self) -> Schema:
        return self.left.schema

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return self.left.codecs

    @cached_property
    def properties(self) -> Properties:
        return Properties(ends_known=False)
