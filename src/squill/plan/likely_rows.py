"""How many rows a plan may have to handle, as far as the plan itself says."""

from __future__ import annotations

import math

from squill.plan.node import Node, walk
from squill.plan.nodes import FrameSource, Source

__all__ = ["likely_rows"]


def likely_rows(node: Node) -> float:
    """Return how many rows the frames below a node have; infinity where there are files, which may hold any number.

    Examples
    --------
    >>> import squill as sq
    >>> likely_rows(sq.from_frame({"k": [1, 2, 3]}).where(sq.col("k") > 1).plan)
    3
    """
    sources = [item for item in walk(node) if isinstance(item, Source)]
    return sum(item.frame.height if isinstance(item, FrameSource) else math.inf for item in sources)
