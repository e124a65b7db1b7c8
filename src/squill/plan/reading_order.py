"""Which inputs are read first where rows have the same time, or none: those that others wait for."""

from __future__ import annotations

from squill.plan.likely_rows import likely_rows
from squill.plan.node import Node
from squill.plan.nodes import Exists, Join, Source

__all__ = ["LEFT", "RIGHT", "reading_order", "table_port"]

LEFT, RIGHT = 0, 1


def table_port(node: Node) -> int | None:
    """Return the input that becomes a table before the other one streams past it; None where neither does.

    It is a relational one; of two the one that the plan names, else the one that is likely smaller.
    """
    if isinstance(node, Exists):
        return RIGHT if node.right.is_relational else None
    if not isinstance(node, Join) or node.how not in ("inner", "cross"):
        return None
    if node.table is not None:
        return LEFT if node.table == "left" else RIGHT
    if node.left.is_relational and node.right.is_relational:
        return LEFT if likely_rows(node.left) < likely_rows(node.right) else RIGHT
    return RIGHT if node.right.is_relational else LEFT if node.left.is_relational else None


def reading_order(root: Node) -> list[Source]:
    """Return the sources of a plan, those of a table before those of what streams past it, else from left to right."""
    order: dict[int, Source] = {}
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Source):
            order[id(node)] = node
        stack.extend(node.inputs if table_port(node) == RIGHT else node.inputs[::-1])
    return list(order.values())
