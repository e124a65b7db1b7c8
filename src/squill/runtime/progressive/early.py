"""`EarlyAnswer`: the answer at one progress point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from squill.engine.codecs import decoded
from squill.errors import PlanError
from squill.plan.node import Node
from squill.plan.schema import Schema
from squill.runtime.progressive.provenance import ProvenanceOf, rows_like
from squill.runtime.progressive.store import DIFF, AnswerStore, in_order
from squill.wording import shortened

__all__ = ["EarlyAnswer"]


class EarlyAnswer:
    """The query's answer over the rows that are there at a progress point.

    ``progress``  the progress point.
    ``fraction``  which part of the rows of the inputs is there; inputs that are there `at_start()` do not count.
    ``is_final``  whether it is the answer over all rows that stay.
    ``elapsed``   how many seconds after the query began it was there.
    """

    def __init__(
        self,
        *,
        node: Node,
        store: AnswerStore,
        changes: Sequence[pl.DataFrame],
        progress: int,
        fraction: float,
        is_final: bool,
        elapsed: float,
        provenance: ProvenanceOf,
        before: int | None = None,
    ) -> None:
        self.progress = progress
        self.fraction = fraction
        self.is_final = is_final
        self.elapsed = elapsed
        self._node = node
        self._store = store
        self._changes = changes
        self._provenance = provenance
        self._before = before
        self._frame: pl.DataFrame | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """The answer's rows, in the order of their columns; built when first asked for."""
        if self._frame is None:
            self._frame = decoded(self._store.at(self.progress), self._node.codecs)
        return self._frame

    @property
    def changes(self) -> pl.DataFrame:
        """What was added (`diff` > 0) and removed (`diff` < 0) since the answer before."""
        if "diff" in self._node.schema:
            raise PlanError(
                "early.changes: a column called 'diff' is there already, where the changes have their own",
                'rename it in the query, for instance .rename({"diff": "diff_value"}); `frame` has it as it is.',
            )
        rows = self._store.changes(self._changes, self.progress, self._before)
        columns = [*rows.drop(DIFF).get_columns(), rows[DIFF].alias("diff")]
        ordered = in_order(pl.DataFrame(columns))
        return decoded(ordered.select("diff", *ordered.columns[:-1]), self._node.codecs)

    def provenance(self, row: Mapping[str, Any] | None = None) -> dict[str, pl.DataFrame]:
        """Return, by input name, the input rows behind this answer: all that are there at its progress point.

        With a `row` of the answer, as a dict, only those that take part in its derivation: of a grouped query the rows
        of its key that pass the filters on the way, of a join the rows of its pairs. What cannot be told exactly is
        refused. The inputs are read again for it, and with a `row` the query is run again over what is there.
        """
        if row is None:
            return self._provenance.all_rows(self.progress)
        self._check_is_there(row)
        return self._provenance.behind(self.progress, self.frame, row)

    def _check_is_there(self, row: Mapping[str, Any]) -> None:
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise PlanError(
                f"provenance: {shortened(row)} is not a row", "give a dict, such as early.frame.row(0, named=True)."
            )
        shown = Schema(self.frame.schema.items())
        for name in row:
            shown.require(name, "provenance")
            if not _is_a(row[name], shown[name]):
                raise PlanError(
                    f"provenance: {name!r} is {shortened(row[name])}, but the column is {shown[name]}",
                    "give a row as early.frame.rows(named=True) has it.",
                )
        if not rows_like(self.frame, row).any():
            raise PlanError(
                f"provenance: the answer has no row {shortened(dict(row))}", "give one of early.frame.rows(named=True)."
            )

    def __repr__(self) -> str:
        final = ", final" if self.is_final else ""
        return f"EarlyAnswer(progress={self.progress}, fraction={self.fraction:.3g}{final})"


def _is_a(value: Any, dtype: pl.DataType) -> bool:
    try:
        pl.select(pl.lit(value, dtype))
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return False
    return True
