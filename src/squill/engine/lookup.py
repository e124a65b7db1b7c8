"""The base of operators that collect a relational input into a table and let the other one stream past it.

A table may be more than memory holds. Where the other input is relational too, so that its rows need not come out in
any order, rows of both then go to disk by parts of their keys, and one part after the other is worked off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import polars as pl

from squill.engine.aligned import LEFT
from squill.engine.batch import Batch
from squill.engine.lookup_table import LookupTable
from squill.engine.machine_memory import state_share
from squill.engine.operator import EDGES, STARTS, Belongs, Operator, OperatorState
from squill.engine.parts import MOST_DEPTH, PARTS, Parts, in_place_of, rows_bytes
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
        self._depth = 0
        self._parts: Parts | None = None
        self._open = {0, 1}
        self._table_bytes = 0
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

    def _again(self) -> Self:
        """Return an operator of the same kind, with the same table, that has no row yet."""
        raise NotImplementedError

    def push(self, batch: Batch, port: int = 0) -> None:
        if self._parts is not None:
            self._put_aside(self._parts, batch, port)
        elif port == self._table_port:
            self._table.add(batch)
            self._table_bytes += rows_bytes(batch)
            if self._table_bytes > self._most_bytes and self._can_be_divided:
                self._divide()
        elif self._table.is_complete:
            self.look_up(batch)
        else:
            self._waiting.append(batch)

    @cached_property
    def _most_bytes(self) -> int:
        # Twice the share: this is an estimate of what arrays take with room to grow, that one of what is in them.
        return 2 * state_share()

    @cached_property
    def _can_be_divided(self) -> bool:
        assert isinstance(self.node, TwoInputs)
        inputs = self.node.inputs
        has_form = not any(isinstance(dtype, pl.Object) for node in inputs for dtype in node.schema.values())
        is_relational = all(node.is_relational for node in inputs)
        return is_relational and has_form and self.node.matching.is_keyed and self._depth < MOST_DEPTH

    def _divide(self) -> None:
        """Put all rows aside, and from now on all that come."""
        self._parts = Parts(self._depth, inputs=2)
        for batch in self._table.rows():
            self._put_aside(self._parts, batch, self._table_port)
        for batch in self._waiting:
            self._put_aside(self._parts, batch, 1 - self._table_port)
        self._waiting = []
        self._collect(self._table_port)

    def _put_aside(self, parts: Parts, batch: Batch, port: int) -> None:
        assert isinstance(self.node, TwoInputs)
        matching = self.node.matching
        parts.add(batch, matching.left_keys if port == LEFT else matching.right_keys, port)

    def _work_off(self, parts: Parts) -> None:
        for part in range(PARTS):
            one = self._again()
            one._depth = self._depth + 1
            with in_place_of(self, one):
                for port in (self._table_port, 1 - self._table_port):
                    for batch in parts.rows_of(part, port):
                        one.push(batch, port)
                    one.advance(INFINITY, port)
            parts.forget(part)
        parts.close()

    def advance(self, t: int, port: int = 0) -> None:
        if t == INFINITY:
            self._open.discard(port)
        if self._parts is not None:
            if not self._open:
                self._work_off(self._parts)
                self.emit_clock(t)
            return
        if port != self._table_port:
            self._reached = max(self._reached, t)
        elif t == INFINITY:
            self._table.complete()
            waiting, self._waiting = self._waiting, []
            for batch in waiting:
                self.look_up(batch)
        if self._table.is_complete:
            self.emit_clock(self._reached)

    def let_go(self) -> None:
        if self._parts is not None:
            self._parts.close()
        super().let_go()

    def save(self) -> OperatorState:
        state: OperatorState = {
            "clock": self.clock,
            "table_port": self._table_port,
            "table": self._table.save(),
            "waiting": list(self._waiting),
            "reached": self._reached,
            "open": sorted(self._open),
        }
        if self._parts is not None:
            state["put_aside"] = [[list(self._parts.rows_of(part, port)) for part in range(PARTS)] for port in (0, 1)]
        return state

    def load(self, state: OperatorState) -> None:
        self.clock = state["clock"]
        # Which input is smaller may have changed since; what was collected stays so. States of before do not say.
        port = state.get("table_port", self._table_port)
        if port != self._table_port:
            self._collect(port)
        self._table.load(state["table"])
        self._waiting = list(state["waiting"])
        self._reached = state["reached"]
        self._open = set(state.get("open", (0, 1)))  # those of states of before went by without parts
        if "put_aside" in state:
            self._parts = Parts(self._depth, inputs=2)
            for side, parts in enumerate(state["put_aside"]):
                for batch in (batch for batches in parts for batch in batches):
                    self._put_aside(self._parts, batch, side)

    def keep(self, belongs: Sequence[Belongs | None]) -> bool:
        if self._parts is not None:
            return False
        streaming = belongs[1 - self._table_port]
        if streaming is not None:
            self._waiting = [rows for batch in self._waiting if len(rows := batch.filter(streaming(batch.columns)))]
        table = belongs[self._table_port]
        if table is not None:
            self._table.keep(table)
        return True

    @property
    def state_rows(self) -> int:
        put_aside = 0 if self._parts is None else self._parts.rows
        return put_aside + len(self._table) + sum(map(len, self._waiting))


def shown_columns(node: TwoInputs, port: int) -> list[str]:
    """Return the columns of this input that pairs show, under the input's own names."""
    return list(node.left.schema) if port == LEFT else [source for _, source in node.matching.right_as]
