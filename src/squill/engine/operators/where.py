"""Where: keep the rows for which a predicate is true."""

from __future__ import annotations

from squill.engine.batch import Batch
from squill.engine.operator import Operator, register
from squill.engine.row_filter import RowFilter
from squill.plan.nodes import Where

__all__ = ["WhereOperator"]


@register(Where)
class WhereOperator(Operator):
    """Both edges of an event see the same payload, so both pass or neither does."""

    demands = None

    def __init__(self, node: Where) -> None:
        super().__init__(node)
        self._filter = RowFilter(node.predicate, node.parent.time)

    def push(self, batch: Batch, port: int = 0) -> None:
        self.emit(self._filter(batch))
