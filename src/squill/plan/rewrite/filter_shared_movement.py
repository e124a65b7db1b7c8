"""Let rows be moved without those that all readers of a movement drop."""

from __future__ import annotations

from dataclasses import replace
from operator import or_

from squill.plan.expressions import combined
from squill.plan.node import Node, walk
from squill.plan.nodes import Where
from squill.plan.nodes.movement import Move
from squill.plan.rebuild import rebuild
from squill.plan.rewrite.push_filter_down import PLACE_EACH_ROW_BY_ITSELF

__all__ = ["filter_shared_movement"]


def filter_shared_movement(root: Node) -> Node:
    """Send the rows that one filter or another lets through, where a movement is read through filters only.

    ::

        join(…)                           join(…)
          where(predicate=x > 9)            where(predicate=x > 9)
            #1 redistribute(by k)             #1 redistribute(by k)
              …                        →        where(predicate=x > 9 | x < 1)
          where(predicate=x < 1)                  …
            (see #1)                        where(predicate=x < 1)
                                              (see #1)

    With one filter `push_filter_down` does it. What is here is computed twice, which costs less than to send a row.
    """
    readers = _readers(root)

    def change(node: Node, original: Node) -> Node:
        if not isinstance(node, Move) or not isinstance(node.routing, PLACE_EACH_ROW_BY_ITSELF):
            return node
        filters = [reader.predicate for reader in readers.get(id(original), ()) if isinstance(reader, Where)]
        if len(filters) < 2 or len(filters) < len(readers[id(original)]):
            return node
        return replace(node, parent=Where(parent=node.parent, predicate=combined(filters, or_)))

    return rebuild(root, change)


def _readers(root: Node) -> dict[int, list[Node]]:
    """Return by node id who reads each movement."""
    readers: dict[int, list[Node]] = {}
    for node in walk(root):
        for item in node.inputs:
            if isinstance(item, Move):
                readers.setdefault(id(item), []).append(node)
    return readers
