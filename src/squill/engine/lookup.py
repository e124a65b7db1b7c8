"""The base of operators that collect a relational input into a table and let the other one stream past it."""

from __future__ import annotations

from collections.abc import Sequence

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.lookup_table import LookupTable
from squill.engine.operator import EDGES, STARTS, Belongs, Operator, OperatorState
from squill.engine.sorted_table import SortedTable, can_merge
from squill.plan.nodes import TwoInputs
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["LookupOperator", "shown_columns"]


class LookupOperator(Operator):
    """Rows of the streaming side wait until the table is complete; after that nothing waits.

    The rows of the table are alive always, so a pair lives as its streaming row does: intervals, start edges and
    end edges are all treated alike. A subclass gives `look_up`.
    """

    def __init__(self, node: TwoInputs, table_port: int) -> None:
        super().__init__(node)
        self._waiting: list[Batch] = []
        self._reached = MINUS_INFINITY
        self._collect(table_port)

    def _collect(self, port: int) -> None:
        """Make this input the table, which has no row yet."""
        assert isinstance(self.node, TwoInputs)
        kind = SortedTable if can_merge(self.node) else LookupTable
        self._table_port = port
        self._table: LookupTable = kind(self.node, port, self._columns_kept())

    def _columns_kept(self) -> Sequence[str]:
        """Return the columns of the table that are needed, beside its keys."""
        raise NotImplementedError

    def demands_on(self, port: int) -> str:
        # One row may become several, so ends by number would name the wrong ones.
        return STARTS if self.demand == STARTS and port != self._table_port else EDGES

    def look_up(self, batch: Batch) -> None:
        """Take rows of the streaming side; the table is complete."""
        raise NotImplementedError

    def push(self, batch: Batch, port: int = 0) -> None:
        if port == self._table_port:
            self._table.add(batch)
        elif self._table.is_complete:
            self.look_up(batch)
        else:
            self._waiting.append(batch)

    def advance(self, t: int, port: int = 0) -> None:
        if port != self._table_port:
            self._reached = max(self._reached, t)
        elif t == INFINITY:
            self._table.complete()
            waiting, self._waiting = self._waiting, []
            for batch in waiting:
                self.look_up(batch)
        if self._table.is_complete:
            self.emit_clock(self._reached)

    def save(self) -> OperatorState:
        return {
            "clock": self.clock,
            "table_port": self._table_port,
            "table": self._table.save(),
            "waiting": list(self._waiting),
            "reached": self._reached,
        }

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        # Which input is smaller may have changed since; what was collected stays so. States of before do not say.
        port = state.get("table_port", self._table_port)
        if port != self._table_port:
            self._collect(port)
        self._table.load(state["table"])
        self._waiting = list(state["waiting"])
        self._reached = state["reached"]

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        streaming = belongs[1 - self._table_port]
        if streaming is not None:
            self._waiting = [rows for batch in self._waiting if len(rows := batch.filter(streaming(batch.columns)))]
        table = belongs[self._table_port]
        if table is not None:
            self._table.keep(table)
        return True

    @property
    def state_rows(self) -> int:
        return len(self._table) + sum(map(len, self._waiting))


def shown_columns(node: TwoInputs, port: int) -> list[str]:
    """Return the columns of this input that pairs show, under the input's own names."""
    return list(node.left.schema) if port == LEFT else [source for _, source in node.matching.right_as]
