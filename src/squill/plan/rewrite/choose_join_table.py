"""Say of joins of two relations which of them becomes the table, while the plan still shows how large they are."""

from __future__ import annotations

from dataclasses import replace

from squill.plan.node import Node
from squill.plan.nodes import Join
from squill.plan.reading_order import LEFT, table_port
from squill.plan.rebuild import rebuild

__all__ = ["choose_join_table"]


def choose_join_table(root: Node) -> Node:
    """Write down the table of every join that could have either side as one.

    ::

        join                              join(table=right)
          frame_source(1,000,000 rows)  →   frame_source(1,000,000 rows)
          broadcast                         broadcast
            frame_source(300 rows)            frame_source(300 rows)

    A plan that is cut at its movements has shard inputs in the place of what they came from, and tasks elsewhere have
    frames without their rows: both tell nobody which side is the smaller one.
    """

    def change(node: Node, _original: Node) -> Node:
        if not isinstance(node, Join) or node.table is not None:
            return node
        if not (node.left.is_relational and node.right.is_relational):
            return node
        port = table_port(node)
        return node if port is None else replace(node, table="left" if port == LEFT else "right")

    return rebuild(root, change)
