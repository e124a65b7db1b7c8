"""Early answers on the caller's thread: rows are pushed until the next progress point is over."""

from __future__ import annotations

from collections.abc import Iterator

from squill.engine.compile import compile_plan
from squill.engine.egress_changes import ChangeRowsSink
from squill.engine.run import source_arrivals, steps
from squill.plan.node import Node
from squill.runtime.progressive.answers import Step
from squill.runtime.progressive.points import ChangesByPoint, Counted
from squill.runtime.shard import rows_per_batch
from squill.time import INFINITY

__all__ = ["in_process"]


def in_process(root: Node, counted: Counted) -> Iterator[Step]:
    """Run the plan and yield its progress points as they are over."""
    sink = ChangeRowsSink(root)
    changes = ChangesByPoint(counted)
    with compile_plan(root, sink) as pipeline:
        inputs = [(source_arrivals(source, rows_per_batch(root)), entry) for source, entry in pipeline.entries]
        for _ in steps(inputs, clocks=True):
            changes.add(sink.take_rows())
            yield from changes.until(sink.clock)
    changes.add(sink.take_rows())
    yield from changes.until(INFINITY)
