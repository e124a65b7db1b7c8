"""Of which inputs of an operator every shard may have a copy, and which plans have one where it may not be."""

from __future__ import annotations

from squill.errors import PlanError
from squill.plan.node import Node, walk
from squill.plan.nodes import AsofJoin, Exists, Join, TwoInputs
from squill.plan.placement import COPY, Placement, Spread, layout_of, placement_after, spreads

__all__ = ["LEFT", "RIGHT", "check_copies", "sides_that_may_be_copied"]

LEFT, RIGHT = "left", "right"
SIDES_OF_JOIN = {"inner": (RIGHT, LEFT), "cross": (RIGHT, LEFT), "left": (RIGHT,), "right": (LEFT,)}
"""An unmatched row is told from one that all partners have been shown to, so its side may not be copied."""


def sides_that_may_be_copied(node: TwoInputs) -> tuple[str, ...]:
    """Return the sides of which every shard may have all rows, wherever those of the other are; preferred ones first.

    Examples
    --------
    >>> import squill as sq
    >>> ads = sq.from_frame({"t": [1], "ad": ["a"]}, start="t")
    >>> [sides_that_may_be_copied(ads.join(ads, on="ad", how=how).plan) for how in ("inner", "left", "full")]
    [('right', 'left'), ('right',), ()]
    """
    return SIDES_OF_JOIN.get(node.how, ()) if isinstance(node, Join) else (RIGHT,)


def check_copies(root: Node) -> None:
    """Raise where an operator would show a row of a copied input once for each shard."""
    found: dict[int, Placement | None] = {}
    for node in walk(root):
        found[id(node)] = placement_after(node, [found[id(parent)] for parent in node.inputs])
        if isinstance(node, TwoInputs):
            for left, right in spreads(found[id(node.left)], found[id(node.right)], layout_of(node)):
                _check_along(node, {LEFT: left, RIGHT: right})


def _check_along(node: TwoInputs, spread: dict[str, Spread]) -> None:
    for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        allowed = sides_that_may_be_copied(node)
        if spread[side] != COPY or spread[other] == COPY or side in allowed:
            continue
        if not _partners_are_together(node, spread[other]):
            how = f" (how={node.how!r})" if isinstance(node, (Join, AsofJoin)) else ""
            raise PlanError(
                f"query: every shard has a copy of the {side} input of {node.name}{how}, and each would show "
                "those of its rows that have no partner there",
                f"redistribute both inputs{f', or broadcast the {other} one' * (other in allowed)}.",
            )


def _partners_are_together(node: TwoInputs, spread: Spread) -> bool:
    """Whether left rows without a partner are not shown, and all partners of one are on one shard."""
    hides = (isinstance(node, AsofJoin) and node.how == "inner") or (isinstance(node, Exists) and not node.negated)
    return hides and isinstance(spread, tuple) and set(spread) <= set(node.matching.right_keys)
