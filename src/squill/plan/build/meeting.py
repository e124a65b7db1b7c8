"""Where the inputs of a sharded query meet: the same shards, the same key, rows of equal keys together."""

from __future__ import annotations

from squill.errors import PlanError
from squill.plan.layout import Layout
from squill.plan.node import Node
from squill.plan.nodes.movement import Move
from squill.plan.placement import Placement, agree, placement_of
from squill.plan.routing import HashRouting

__all__ = ["check_keys_alike", "meeting"]


def check_keys_alike(
    left: Node, right: Node, left_keys: tuple[str, ...], right_keys: tuple[str, ...], operator: str
) -> None:
    if left_keys != right_keys:
        raise PlanError(
            f"{operator}: the inputs have different keys: {_show(left_keys)} and {_show(right_keys)}",
            "rekey one of them; rekey(k=sq.col('other_name')) makes a key of the same name.",
        )
    for key in left_keys:
        if left.schema[key] != right.schema[key]:
            raise PlanError(
                f"{operator}: the key {key!r} is {left.schema[key]} in one input and {right.schema[key]} in the other",
                "cast one of them before rekey.",
            )


def _show(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) if keys else "none"


def meeting(left: Node, right: Node, keys: tuple[str, ...], layout: Layout) -> tuple[Node, Node]:
    """Return the inputs of a keyed query such that rows of equal keys meet; without a key as they are.

    When one input is placed by the key and nothing is known of the other, the other is moved likewise.
    """
    places = placement_of(left), placement_of(right)
    if not keys or agree(*places, keys, layout):
        return left, right
    placed = Placement.hashed(keys, layout)
    if places == (placed, None):
        return left, _placed(right, keys, layout)
    if places == (None, placed):
        return _placed(left, keys, layout), right
    shown = " and ".join(str(place) if place is not None else "not known" for place in places)
    raise PlanError(
        f"query: rows of equal {', '.join(keys)} may live on different shards; the inputs' placements are {shown}",
        "redistribute both inputs, or broadcast one of them.",
    )


def _placed(node: Node, keys: tuple[str, ...], layout: Layout) -> Node:
    return Move(parent=node, routing=HashRouting(keys=keys, layout=layout))
