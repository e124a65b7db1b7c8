"""Joins and existence tests of which an input is relational: which physical variant runs."""

from __future__ import annotations

from squill.engine.operator import Operator
from squill.engine.operators.lookup_exists import LookupExists
from squill.engine.operators.lookup_join import LookupJoin
from squill.plan.nodes import Exists, Join
from squill.plan.reading_order import table_port

__all__ = ["choose_relational"]


def choose_relational(node: Join | Exists) -> Operator | None:
    """Return the operator for a node with a relational input, or None when it needs one that compares lifetimes."""
    port = table_port(node)
    if port is None:
        return None
    return LookupExists(node) if isinstance(node, Exists) else LookupJoin(node, port)
