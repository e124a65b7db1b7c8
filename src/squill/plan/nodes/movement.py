"""Nodes that say where rows live: how a source is split over shards, and how rows move between them.

They stand in the plan like any other node and leave events as they are. No operator runs them: the plan
is cut into fragments there, and a runtime moves the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from squill.plan.codec import Codec
from squill.plan.layout import Layout
from squill.plan.live import Refresh
from squill.plan.node import UnaryNode
from squill.plan.nodes.sources import GivenSource
from squill.plan.routing import Routing

__all__ = ["Move", "ShardInput", "Split"]


@dataclass(frozen=True, kw_only=True)
class Split(UnaryNode):
    """Cut a stored source into parts, one for each shard of `layout`; in a live plan it may be read again."""

    layout: Layout
    refresh: Refresh | None = None


@dataclass(frozen=True, kw_only=True)
class Move(UnaryNode):
    """Send each row to the shards that `routing` names."""

    routing: Routing

    @property
    def name(self) -> str:
        return self.routing.verb


@dataclass(frozen=True, kw_only=True)
class ShardInput(GivenSource):
    """What a shard receives over a channel: stands in a fragment where a movement was cut out of the plan."""

    channel: int
    encoded: tuple[tuple[str, Codec], ...] = ()

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return dict(self.encoded)
