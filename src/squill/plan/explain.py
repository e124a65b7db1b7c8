"""Plans as text: one line per node, inputs indented below their consumer."""

from __future__ import annotations

from collections.abc import Callable

from squill.plan.node import Node

__all__ = ["explain", "node_line"]


def explain(root: Node, note: Callable[[Node], str] | None = None) -> str:
    """Return the plan as an indented tree; a node that is used twice is written once and referred to.

    The line says what the node does, then the columns it gives, then what is known of its lifetimes, and last what
    `note` says of the node, if it says anything.
    """
    uses = _count_uses(root)
    numbers: dict[int, int] = {}
    lines: list[str] = []

    def write(node: Node, depth: int) -> None:
        indent = "  " * depth
        if id(node) in numbers:
            lines.append(f"{indent}(see #{numbers[id(node)]})")
            return
        mark = ""
        if uses[id(node)] > 1:
            numbers[id(node)] = len(numbers) + 1
            mark = f"#{numbers[id(node)]} "
        noted = "" if note is None else note(node)
        lines.append(f"{indent}{mark}{node_line(node)}{'  ' if noted else ''}{noted}")
        for parent in node.inputs:
            write(parent, depth + 1)

    write(root, 0)
    return "\n".join(lines)


def node_line(node: Node) -> str:
    """Return what the node does, the columns it gives, and what is known of its lifetimes."""
    time = "relational" if node.time is None else f"{node.time}; {node.properties.describe()}"
    return f"{node.name}({node.details()})  -> {node.schema!r}  [{time}]"


def _count_uses(root: Node) -> dict[int, int]:
    uses: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        uses[id(node)] = uses.get(id(node), 0) + 1
        if uses[id(node)] == 1:
            stack.extend(node.inputs)
    return uses
