"""Select: give each row new columns."""

from __future__ import annotations

from squill.engine.batch import Batch
from squill.engine.expressions import Evaluator
from squill.engine.operator import Operator, register
from squill.plan.nodes import Select

__all__ = ["SelectOperator"]


@register(Select)
class SelectOperator(Operator):
    """A subset of the columns touches nothing; computed columns are one Polars call."""

    demands = None

    def __init__(self, node: Select) -> None:
        super().__init__(node)
        self._columns = Evaluator(node.columns, node.parent.time, "select")

    def push(self, batch: Batch, port: int = 0) -> None:
        self.emit(batch.with_columns(self._columns(batch)))
