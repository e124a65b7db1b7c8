"""The join of rows that meet those of their own step only, or rows that every step has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from squill.engine.aligned import LEFT, RIGHT, AlignedOperator
from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.lookup import shown_columns
from squill.engine.lookup_table import LookupTable
from squill.engine.operator import STARTS, OperatorState
from squill.engine.pair_columns import PairColumns
from squill.plan.nodes import Join

__all__ = ["StepJoin"]

TABLE_PORTS = {"left": LEFT, "right": RIGHT, "none": None}


class StepJoin(AlignedOperator):
    """The rows of a step on one side are a table which those of the other side look up; then both are forgotten.

    Equal keys come at one step, so that rows of several steps may be looked up together. Rows that every step has come
    at the first one, and their table stays. State: that table, and the rows of a step that is not over.
    """

    demands = STARTS

    def __init__(self, node: Join) -> None:
        super().__init__(node)
        self._node = node
        assert node.by_step is not None
        self._table_port = TABLE_PORTS[node.by_step]
        self._table = None if self._table_port is None else self._new_table(self._table_port)

    def _new_table(self, port: int) -> LookupTable:
        return LookupTable(self._node, port, shown_columns(self._node, port))

    def accept(self, batch: Batch, port: int) -> Batch:
        # Ends say nothing new: every row is gone with its step, or stays.
        return batch.filter(batch.other > batch.sync) if batch.duration is None else batch

    def run_batches(self, left: Sequence[Batch], right: Sequence[Batch], bound: int) -> None:
        rows = (left, right)
        if self._table is not None and self._table_port is not None:
            if not self._table.is_complete:
                _fill(self._table, rows[self._table_port])
            self._look_up(self._table, self._table_port, rows[1 - self._table_port])
        elif left and right:
            port = LEFT if sum(map(len, left)) < sum(map(len, right)) else RIGHT
            table = self._new_table(port)
            _fill(table, rows[port])
            self._look_up(table, port, rows[1 - port])

    def _look_up(self, table: LookupTable, port: int, asking: Sequence[Batch]) -> None:
        """Hand on what was found, in one batch where it is little: each costs those behind as much as many rows."""
        held: list[Batch] = []
        for found in self._found(table, port, asking):
            self.checkpoint()
            if sum(map(len, held)) + len(found) > DEFAULT_BATCH_ROWS:
                self._emit_held(held)
            held.append(found)
        self._emit_held(held)

    def _emit_held(self, held: list[Batch]) -> None:
        if held:
            self.emit(Batch.concat(held))
            held.clear()

    def _found(self, table: LookupTable, port: int, asking: Sequence[Batch]) -> Iterator[Batch]:
        names = shown_columns(self._node, 1 - port)
        for batch in asking:
            shown = {name: batch.columns[name] for name in names}
            asked = batch.with_columns(shown).with_duration(1)
            for rows, places in table.pairs(batch):
                chosen = asked if rows is None else asked.take(rows)
                sides = (lambda _: dict(chosen.columns), table.columns)  # noqa: B023  (called before the next turn)
                pairs = PairColumns(self._node, *(sides if port == RIGHT else sides[::-1]))
                mask, columns = pairs.matching(places, places)
                found = chosen.with_columns(columns)
                yield found if mask is None else found.filter(mask)

    def save(self) -> OperatorState:
        return {**super().save(), "table": None if self._table is None else self._table.save()}

    def load(self, state: OperatorState) -> None:
        super().load(state)
        if self._table is not None:
            self._table.load(state["table"])

    @property
    def state_rows(self) -> int:
        return super().state_rows + (0 if self._table is None else len(self._table))


def _fill(table: LookupTable, rows: Sequence[Batch]) -> None:
    table.expect(sum(map(len, rows)))
    for batch in rows:
        table.add(batch)
    table.complete()
