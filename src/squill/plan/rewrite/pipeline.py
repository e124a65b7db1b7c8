"""The rules in the order in which they run, and why they stand there."""

from __future__ import annotations

from collections.abc import Callable

from squill.plan.node import Node
from squill.plan.rewrite.filter_shared_movement import filter_shared_movement
from squill.plan.rewrite.lower_outer_join import lower_outer_join
from squill.plan.rewrite.push_filter_down import push_filter_down
from squill.plan.rewrite.push_projection_into_scan import push_projection_into_scan

__all__ = ["RULES", "rewrite"]

RULES: tuple[Callable[[Node], Node], ...] = (
    # Before what looks at columns: it makes new nodes.
    lower_outer_join,
    # Before what brings filters into scans: this makes one.
    filter_shared_movement,
    # Before projections: a filter that has moved into the scan needs its columns no longer above it.
    push_filter_down,
    push_projection_into_scan,
)


def rewrite(node: Node) -> Node:
    """Return an equivalent plan that costs no more; the same object when no rule applies."""
    for rule in RULES:
        node = rule(node)
    return node
