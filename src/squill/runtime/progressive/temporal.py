"""Early answers of queries over time: the rows of each step of a hash are a query of their own.

No operator looks at rows of different steps (`plan/apart.py`), so the answer at a progress point is the union of the
ordinary answers over the rows of each step up to it, and what a step brings is just its own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, pairwise

import numpy as np
import polars as pl

from squill.engine.batch import Int64s
from squill.engine.progress.ingress import pieces_of_progress, ready_to_read
from squill.engine.progress.points import points_of
from squill.engine.progress.tally import Tally
from squill.plan.assignment import STEP, AtStart
from squill.plan.build.progress import ProgressInput, placed_again
from squill.plan.expressions import column
from squill.plan.node import Node
from squill.plan.nodes import FileSource, FrameSource, Select
from squill.plan.rebuild import substitute
from squill.plan.schema import Schema
from squill.runtime.progressive.answers import Step
from squill.runtime.progressive.points import Counted
from squill.runtime.progressive.store import DIFF
from squill.runtime.progressive.whole import whole_answer
from squill.runtime.runtime import Runtime

__all__ = ["by_steps"]


def by_steps(
    root: Node,
    inputs: list[ProgressInput],
    coarsen: int,
    runtime: Runtime | None,
    sharded: Callable[[Node], Node],
) -> Iterator[Step]:
    """Yield the steps, each with the answer over its own rows."""
    dealt = {id(item.source): _Dealt(item, coarsen) for item in inputs}
    counted = Counted([item.counted for item in dealt.values()])
    bare = placed_again(root, inputs)
    for point, later in pairwise(chain(counted.points(), (None,))):
        assert point is not None
        changes: list[pl.DataFrame] = []
        if point == 0 or any(item.has_rows_at(point) for item in dealt.values()):
            plan = sharded(substitute(bare, partial(_of_step, dealt, point)))
            changes = [whole_answer(plan, runtime).with_columns(pl.lit(1, pl.Int64).alias(DIFF))]
        yield Step(point=point, changes=changes, fraction=counted.fraction(point), is_final=later is None)


def _of_step(dealt: dict[int, _Dealt], point: int, node: Node) -> Node | None:
    return dealt[id(node)].at(point) if id(node) in dealt else None


class _Dealt:
    """The rows of one input, by step; `counted` stands for it among the inputs whose rows are counted."""

    def __init__(self, item: ProgressInput, coarsen: int) -> None:
        self._source = item.source
        self.counted = item.over_progress(item.source, coarsen, Tally())
        self._is_whole = isinstance(item.assignment, AtStart)
        self._frame, self._steps = self._read()

    def _read(self) -> tuple[pl.DataFrame, Int64s]:
        """Return the rows in the order of steps, those of a step as they stand, and the step of each."""
        frames, steps = [], [np.empty(0, np.int64)]
        for piece in pieces_of_progress(ready_to_read(self.counted)):
            starts, _ = points_of(piece)
            self.counted.tally.add(starts, None)
            frames.append(pl.DataFrame([series for name, series in piece.columns.items() if name != STEP]))
            steps.append(starts)
        self.counted.tally.finish()
        step = np.concatenate(steps)
        order = np.argsort(step, kind="stable")
        frame = pl.concat(frames) if frames else self._source.columns.empty_frame()
        return (frame if self._is_whole else frame[order]), step[order]

    def has_rows_at(self, point: int) -> bool:
        low, high = self._range(point)
        return low < high and not self._is_whole

    def _range(self, point: int) -> tuple[int, int]:
        low, high = np.searchsorted(self._steps, [point, point + 1])
        return int(low), int(high)

    def at(self, point: int) -> Node:
        """Return a source of the rows of one step, with the same columns as the input."""
        low, high = self._range(point)
        frame = self._frame if self._is_whole else self._frame.slice(low, high - low)
        source = self._source
        assert isinstance(source, (FrameSource, FileSource))
        given = FrameSource(
            label=source.label,
            columns=Schema(zip(frame.columns, frame.dtypes, strict=True)),
            lifetime=source.lifetime,
            promises=source.promises,
            frame=frame,
            frame_id=id(frame),
            predicate=source.predicate,
        )
        if given.schema == source.schema:
            return given
        return Select(parent=given, columns=tuple(column(name, dtype) for name, dtype in source.schema.items()))
