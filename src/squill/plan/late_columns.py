"""Let what is computed from the step alone wait until somebody looks at an answer.

The intervals of `sq.ci` change at every step, also of groups that do not, because the share of clusters does. So they
are computed from pieces of one step each (`plan/build/confidence.py`). Where nothing but row by row work follows,
nobody needs the pieces before an answer is looked at: what flows are the moments of groups that change, and the rest of
the plan is run on those of one answer, all of which are then at its progress point::

    select(m = interval of the moments, of start)       late: run on the rows of an answer
      chop(1, until)
        aggregate(keys, moments)                        flows
"""

from __future__ import annotations

from squill.plan.node import Node
from squill.plan.nodes import Chop, Select, Where
from squill.plan.nodes.sources import GivenSource
from squill.plan.properties import Properties
from squill.plan.rebuild import substitute
from squill.time import PROGRESS

__all__ = ["without_late_columns"]


def without_late_columns(root: Node) -> tuple[Node, Node | None]:
    """Return the plan that is to flow, and what is to be run on the rows of an answer; None for nothing."""
    node = root
    while isinstance(node, (Select, Where)):
        node = node.parent
    if not isinstance(node, Chop) or node.until is None:
        return root, None
    flowing = node.parent
    if any(dtype.is_nested() for dtype in flowing.schema.values()):
        return root, None  # the values at ranks of a quantile are many, and changes would be summed by them
    answer = GivenSource(
        label="rows that flow",
        columns=flowing.schema,
        lifetime=None,
        time_type=PROGRESS,
        known=Properties(endless=True),
    )
    return flowing, substitute(root, lambda item: answer if item is node else None)
