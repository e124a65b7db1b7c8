"""Change nodes from the sources up, keeping what is shared shared and what is unchanged the same object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from squill.plan.node import Node, UnaryNode, walk
from squill.plan.nodes import Union

__all__ = ["consumer_counts", "rebuild"]


def rebuild(root: Node, change: Callable[[Node, Node], Node]) -> Node:
    """Return the plan with every node replaced by ``change(node, original)``, inputs first.

    `node` stands on the changed inputs already; it is `original` itself when none of them changed. A node used
    twice is changed once.
    """
    changed: dict[int, Node] = {}
    for original in walk(root):
        inputs = tuple(changed[id(item)] for item in original.inputs)
        changed[id(original)] = change(_with_inputs(original, inputs), original)
    return changed[id(root)]


def _with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    if isinstance(node, UnaryNode):
        return replace(node, parent=inputs[0])
    if isinstance(node, Union):
        return replace(node, parents=inputs)
    raise TypeError(f"{node.name} has inputs that cannot be replaced")


def consumer_counts(root: Node) -> dict[int, int]:
    """Return by node id how many nodes read each node."""
    counts: dict[int, int] = {}
    for node in walk(root):
        for item in node.inputs:
            counts[id(item)] = counts.get(id(item), 0) + 1
    return counts
