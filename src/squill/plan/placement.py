"""Where rows live: which columns decide a row's shard.

A placement is known after a movement and lasts as long as its columns do. Forgetting one is always
allowed: it costs a movement, never an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from squill.plan.node import Node, UnaryNode
from squill.plan.nodes import (
    Aggregate,
    ConsecutivePairs,
    Detect,
    MapBatches,
    Select,
    SelectMany,
    Sessionize,
    SnapshotApply,
    UserOperator,
)
from squill.plan.nodes.movement import Redistribute, Split

__all__ = ["KEY_HASH_VERSION", "Placement", "placement_of"]

KEY_HASH_VERSION = 1
"""The version of the engine's key hash, which every placement is stamped with; a test holds them together."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A row lives on shard ``hash(keys) % shards``; the hash is of the given version.

    Examples
    --------
    >>> print(Placement(keys=("user", "ad"), shards=4))
    hash(user, ad) v1 % 4
    """

    keys: tuple[str, ...]
    shards: int
    hash_version: int = KEY_HASH_VERSION

    def __str__(self) -> str:
        return f"hash({', '.join(self.keys)}) v{self.hash_version} % {self.shards}"


def placement_of(node: Node) -> Placement | None:
    """Return where the node's rows live, or None when nothing is known of it."""
    kept: list[UnaryNode] = []
    while isinstance(node, UnaryNode) and not isinstance(node, (Redistribute, Split)):
        kept.append(node)
        node = node.parent
    if not isinstance(node, Redistribute):
        return None
    placement = Placement(keys=node.keys, shards=node.shards)
    return placement if all(_keeps(step, key) for step in kept for key in placement.keys) else None


def _keeps(node: UnaryNode, key: str) -> bool:
    """Whether the column is in the node's output as it was in its input."""
    test = _KEEPS.get(type(node))
    return key in node.schema and (test is None or test(node, key))


_KEEPS: dict[type[UnaryNode], Callable[[Any, str], bool]] = {
    Select: lambda node, key: any(item.name == key == item.source_column for item in node.columns),
    Aggregate: lambda node, key: key in node.keys,
    ConsecutivePairs: lambda node, key: key in node.keys,
    Detect: lambda node, key: key in node.keys,
    SelectMany: lambda node, key: key != node.column,
    MapBatches: lambda node, key: key in node.keys,
    Sessionize: lambda node, key: key in node.keys,
    SnapshotApply: lambda node, key: key in node.keys,
    UserOperator: lambda node, key: key in node.keys,
}
"""The nodes that may change columns; all others hand payloads on."""
