"""Join: which of its physical variants runs, by what is known of the inputs."""

from __future__ import annotations

from squill.engine.operator import Operator, register
from squill.engine.operators.edge_join import EdgeJoin
from squill.engine.operators.interval_join import IntervalJoin
from squill.engine.operators.step_join import StepJoin
from squill.engine.relational_variants import choose_relational
from squill.errors import InternalError
from squill.plan.nodes import Join

__all__ = ["join_operator"]


@register(Join)
def join_operator(node: Join) -> Operator:
    """Return the cheapest operator that gives the join's answer."""
    if node.how not in ("inner", "cross"):
        raise InternalError(f"join: how={node.how!r} was not lowered")
    if node.by_step is not None:
        return StepJoin(node)
    relational = choose_relational(node)
    if relational is not None:
        return relational
    if node.left.properties.ends_known and node.right.properties.ends_known:
        return IntervalJoin(node)
    return EdgeJoin(node)
