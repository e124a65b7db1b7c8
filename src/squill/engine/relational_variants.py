"""Joins and existence tests of which an input is relational: which physical variant runs."""

from __future__ import annotations

import math

from squill.engine.aligned import LEFT, RIGHT
from squill.engine.operator import Operator
from squill.engine.operators.lookup_exists import LookupExists
from squill.engine.operators.lookup_join import LookupJoin
from squill.plan.node import Node, walk
from squill.plan.nodes import Exists, FrameSource, Join, Source

__all__ = ["choose_relational"]


def choose_relational(node: Join | Exists) -> Operator | None:
    """Return the operator for a node with a relational input, or None when it needs one that compares lifetimes."""
    if isinstance(node, Exists):
        return LookupExists(node) if node.right.is_relational else None
    if node.how not in ("inner", "cross") or not (node.left.is_relational or node.right.is_relational):
        return None
    return LookupJoin(node, _table_port(node))


def _table_port(node: Join) -> int:
    """Return the side that becomes the table: the relational one, of two the one that is likely smaller."""
    if not (node.left.is_relational and node.right.is_relational):
        return RIGHT if node.right.is_relational else LEFT
    return LEFT if _likely_rows(node.left) < _likely_rows(node.right) else RIGHT


def _likely_rows(node: Node) -> float:
    """Return how many rows the node's inputs have; files may be larger than memory."""
    sources = [item for item in walk(node) if isinstance(item, Source)]
    return sum(item.frame.height if isinstance(item, FrameSource) else math.inf for item in sources)
