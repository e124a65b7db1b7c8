"""Exchange nodes of a plan for others; what is not touched stays the same object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace

from squill.plan.node import Node

__all__ = ["substitute"]


def substitute(root: Node, choose: Callable[[Node], Node | None]) -> Node:
    """Return the plan in which every node for which `choose` returns one is exchanged for it.

    `choose` is asked from the root downwards, once per node, and not below a node that it exchanged. A node
    that is used twice stays one node.
    """
    built: dict[int, Node] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, inputs_are_built = stack.pop()
        if inputs_are_built:
            built[id(node)] = _with_inputs(node, built)
        elif id(node) not in built:
            chosen = choose(node)
            if chosen is not None:
                built[id(node)] = chosen
            else:
                stack.append((node, True))
                stack.extend((parent, False) for parent in node.inputs)
    return built[id(root)]


def _with_inputs(node: Node, built: Mapping[int, Node]) -> Node:
    if all(built[id(parent)] is parent for parent in node.inputs):
        return node
    changed: dict[str, object] = {}
    for entry in fields(node):
        value = getattr(node, entry.name)
        if isinstance(value, Node):
            changed[entry.name] = built[id(value)]
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            changed[entry.name] = tuple(built[id(item)] for item in value)
    return replace(node, **changed)
