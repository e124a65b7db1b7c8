"""Nodes that say where rows live: how a source is split over shards, and how rows move between them.

They stand in the plan like any other node and leave events as they are. No operator runs them: the plan
is cut into fragments there, and a runtime moves the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from squill.plan.node import UnaryNode
from squill.plan.nodes.sources import Source
from squill.plan.properties import Properties
from squill.time import TimeType

__all__ = ["Redistribute", "ShardInput", "Split"]


@dataclass(frozen=True, kw_only=True)
class Split(UnaryNode):
    """Cut a stored source into `shards` parts, by rows (frames) or by files."""

    shards: int


@dataclass(frozen=True, kw_only=True)
class Redistribute(UnaryNode):
    """Send each row to the shard that its key's hash names, so that no key lives on two shards."""

    keys: tuple[str, ...]
    shards: int


@dataclass(frozen=True, kw_only=True)
class ShardInput(Source):
    """What a shard receives: stands in a fragment where a movement was cut out of the plan."""

    time_type: TimeType | None
    known: Properties

    @cached_property
    def time(self) -> TimeType | None:
        return self.time_type

    @cached_property
    def properties(self) -> Properties:
        return self.known
