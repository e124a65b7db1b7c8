"""The same plan on other numbers of shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from squill.plan.layout import Layout
from squill.plan.node import Node, walk
from squill.plan.nodes.movement import Move, Split
from squill.plan.rebuild import rebuild
from squill.plan.routing import FLAT

__all__ = ["is_flat", "shards_in", "with_shards"]


def shards_in(root: Node) -> list[int]:
    """Return how many shards each source is split into and each movement goes to, in plan order."""
    return [_layout(node).shards for node in walk(root) if isinstance(node, (Split, Move))]


def is_flat(root: Node) -> bool:
    """Whether no movement stays inside a machine, or between machines: then shards mean nothing but a number."""
    return all(node.routing.scope == FLAT for node in walk(root) if isinstance(node, Move))


def with_shards(root: Node, shards: Sequence[int], layout_of: Callable[[int], Layout]) -> Node:
    """Return the plan on these numbers of shards, which stand in the order of `shards_in`."""
    wanted = iter(shards)
    layouts = {id(node): layout_of(next(wanted)) for node in walk(root) if isinstance(node, (Split, Move))}

    def change(node: Node, original: Node) -> Node:
        if isinstance(node, Split):
            return replace(node, layout=layouts[id(original)])
        if isinstance(node, Move):
            return replace(node, routing=replace(node.routing, layout=layouts[id(original)]))
        return node

    return rebuild(root, change)


def _layout(node: Split | Move) -> Layout:
    return node.layout if isinstance(node, Split) else node.routing.layout
