"""Leave out movements that would bring no row to another place."""

from __future__ import annotations

from squill.plan.node import Node, walk
from squill.plan.nodes import TwoInputs, Union
from squill.plan.nodes.movement import Move
from squill.plan.placement import layout_of, placement_of
from squill.plan.rebuild import rebuild
from squill.plan.routing import FLAT, HashRouting, MulticastRouting

__all__ = ["leave_out_movements"]


def leave_out_movements(root: Node) -> Node:
    """Return the plan without the movements whose rows are where they should be; the same object if there are none.

    ::

        redistribute(by k, x)        where(…)
          where(…)              →      redistribute(by k)
            redistribute(by k)

    Rows that were placed by fewer columns, as here, have each key on one shard, but not on the one that another input
    would look for it. So such a movement stays where an operator of several inputs relies on it. Inputs first: what a
    later movement can rely on is where rows are once the earlier ones have been left out.
    """
    relied_on = _relied_on(root)

    def change(node: Node, original: Node) -> Node:
        if isinstance(node, Move) and _moves_nothing(node, is_relied_on=id(original) in relied_on):
            return node.parent
        return node

    return rebuild(root, change)


def _moves_nothing(node: Move, *, is_relied_on: bool) -> bool:
    routing = node.routing
    if layout_of(node.parent) == routing.layout and len(routing.targets(0)) == 1:
        return not isinstance(routing, MulticastRouting)  # every shard would send to itself
    if not isinstance(routing, HashRouting) or routing.scope != FLAT:
        return False
    before = placement_of(node.parent)
    if before is None or before.layout != routing.layout or before.keys is None:
        return False
    return before.keys == routing.keys or (not is_relied_on and set(before.keys) <= set(routing.keys))


def _relied_on(root: Node) -> set[int]:
    """Return the movements by which an operator of several inputs finds rows of equal keys.

    Those are the last ones before it; one within machines, or between them, leaves in force what the one before it has
    settled of the other.
    """
    found: set[int] = set()
    below_pair: dict[int, bool] = {}
    for node in reversed(list(walk(root))):
        is_below = below_pair.get(id(node), False)
        if isinstance(node, Move) and is_below:
            found.add(id(node))
        settles_all = isinstance(node, Move) and node.routing.scope == FLAT
        passes = isinstance(node, (TwoInputs, Union)) or (is_below and not settles_all)
        for parent in node.inputs:
            below_pair[id(parent)] = below_pair.get(id(parent), False) or passes
    return found
