"""Plans with other nodes in them: what is shared stays shared, what is not touched stays the same object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from squill.plan.node import Node, walk

__all__ = ["consumer_counts", "rebuild", "substitute", "with_inputs"]


def rebuild(root: Node, change: Callable[[Node, Node], Node]) -> Node:
    """Return the plan with every node replaced by ``change(node, original)``, inputs first.

    `node` stands on the changed inputs already; it is `original` itself when none of them changed. A node used
    twice is changed once.
    """
    built: dict[int, Node] = {}
    for original in walk(root):
        built[id(original)] = change(_with_inputs(original, built), original)
    return built[id(root)]


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
                stack.extend((parent, False) for parent in reversed(node.inputs))
    return built[id(root)]


def _with_inputs(node: Node, built: dict[int, Node]) -> Node:
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


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node on changed inputs; the same object when none of them changed."""
    return _with_inputs(node, {id(item): change(item) for item in node.inputs})


def consumer_counts(root: Node) -> dict[int, int]:
    """Return by node id how many nodes read each node."""
    counts: dict[int, int] = {}
    for node in walk(root):
        for item in node.inputs:
            counts[id(item)] = counts.get(id(item), 0) + 1
    return counts
