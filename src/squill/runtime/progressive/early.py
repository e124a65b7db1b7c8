"""`EarlyAnswer`: the answer at one progress point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import polars as pl

from squill.engine.codecs import decoded
from squill.errors import PlanError
from squill.plan.node import Node
from squill.runtime.progressive.asked import AskedRow, asked_row
from squill.runtime.progressive.provenance import ProvenanceOf
from squill.runtime.progressive.store import DIFF, AnswerStore, in_order

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

    @cached_property
    def _stored(self) -> pl.DataFrame:
        return self._store.at(self.progress)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The answer's rows, in the order of their columns; built when first asked for."""
        return decoded(self._stored, self._node.codecs)

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

    def provenance(self, row: AskedRow | None = None) -> dict[str, pl.DataFrame]:
        """Return, by input name, the input rows behind this answer: all that are there at its progress point.

        With a `row` of the answer only those that take part in its derivation: of a grouped query the rows of its key
        that pass the filters on the way, of a join the rows of its pairs. What cannot be told exactly is refused. The
        inputs are read again for it, and with a `row` the query is run again over what is there.

        A `row` is a dict of values that it has, its number in `frame`, or one row as a frame, such as `frame[3]`. The
        last two say nanoseconds too, which Python's values do not have.
        """
        if row is None:
            return self._provenance.all_rows(self.progress)
        wanted = asked_row(row, self.frame, self._stored, self._node.codecs)
        return self._provenance.behind(self.progress, self._stored, wanted)

    def __repr__(self) -> str:
        final = ", final" if self.is_final else ""
        return f"EarlyAnswer(progress={self.progress}, fraction={self.fraction:.3g}{final})"
