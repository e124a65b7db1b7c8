"""Build the nodes that put two events of a key side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from squill.errors import PlanError
from squill.plan.build.aggregation import group_keys
from squill.plan.build.checks import refuse_objects
from squill.plan.build.patterns import bind_order, ordered_time
from squill.plan.expressions import bind_predicate
from squill.plan.node import Node
from squill.plan.nodes import ConsecutivePairs, Sessionize
from squill.plan.nodes.patterns import PairNode, right_name
from squill.time import Duration

__all__ = ["consecutive_pairs", "followed_by", "sessionize"]

Pairs = TypeVar("Pairs", bound=PairNode)


def consecutive_pairs(node: Node, keys: Sequence[str], order_by: object) -> Node:
    ordered_time(node, "consecutive_pairs")
    built = ConsecutivePairs(
        parent=node,
        keys=tuple(keys),
        first=None,
        second=None,
        within=None,
        order_by=bind_order(order_by, node, "consecutive_pairs"),
    )
    return _checked(built, "consecutive_pairs")


def followed_by(
    node: Node, keys: Sequence[str], a: object, b: object, within: Duration | None, order_by: object
) -> Node:
    time = ordered_time(node, "followed_by")
    built = ConsecutivePairs(
        parent=node,
        keys=tuple(keys),
        first=bind_predicate(a, node.scope, "followed_by"),
        second=bind_predicate(b, node.scope, "followed_by"),
        within=None if within is None else time.positive(within, "followed_by: within"),
        order_by=bind_order(order_by, node, "followed_by"),
    )
    return _checked(built, "followed_by")


def sessionize(node: Node, keys: Sequence[str], is_start: object, is_end: object, on: object) -> Node:
    ordered_time(node, "sessionize")
    names = tuple(keys)
    if on is not None:
        node, names = group_keys(node, keys, on, {}, "sessionize")
    built = Sessionize(
        parent=node,
        keys=names,
        is_start=bind_predicate(is_start, node.scope, "sessionize"),
        is_end=bind_predicate(is_end, node.scope, "sessionize"),
    )
    return _checked(built, "sessionize")


def _checked(built: Pairs, operator: str) -> Pairs:
    """Return the node, or raise when a column of one event would have the name of one of the other."""
    refuse_objects(operator, built.parent)
    for name in built.others:
        if right_name(name) in built.parent.schema:
            raise PlanError(
                f"{operator}: the second event's {name!r} would be called {right_name(name)!r}, "
                "which is a column already",
                f"rename it before: .rename({{{right_name(name)!r}: …}}).",
            )
    return built
