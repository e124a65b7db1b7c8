"""Early answers on the caller's thread: rows are pushed until the next progress point is over."""

from __future__ import annotations

from collections.abc import Iterator

from squill.engine.batch import DEFAULT_BATCH_ROWS
from squill.engine.compile import compile_plan
from squill.engine.egress_changes import ChangeRowsSink
from squill.engine.run import source_arrivals, steps
from squill.plan.node import Node
from squill.runtime.progressive.answers import Step
from squill.runtime.progressive.points import ChangesByPoint, Counted
from squill.time import INFINITY

__all__ = ["BATCH_ROWS", "in_process"]

BATCH_ROWS = 4 * DEFAULT_BATCH_ROWS
"""Large steps are pushed in few pieces, each of which has its price; small ones end pieces anyway."""


def in_process(root: Node, counted: Counted) -> Iterator[Step]:
    """Run the plan and yield its progress points as they are over."""
    sink = ChangeRowsSink(root)
    pipeline = compile_plan(root, sink)
    changes = ChangesByPoint(counted)
    inputs = [(source_arrivals(source, BATCH_ROWS), entry) for source, entry in pipeline.entries]
    for _ in steps(inputs, clocks=True):
        changes.add(sink.take_rows())
        yield from changes.until(sink.clock)
    changes.add(sink.take_rows())
    yield from changes.until(INFINITY)
