"""Ordinary answers that progressive queries need on their way."""

from __future__ import annotations

import polars as pl

from squill.engine.compile import compile_plan
from squill.engine.egress import CollectSink
from squill.engine.run import default_rows, drive
from squill.plan.fragments import fragments_of
from squill.plan.node import Node
from squill.plan.rewrite import rewrite
from squill.runtime.answer import CollectAnswer
from squill.runtime.collect import answer_frame
from squill.runtime.runtime import Runtime

__all__ = ["whole_answer"]


def whole_answer(plan: Node, runtime: Runtime | None) -> pl.DataFrame:
    """Return the ordinary answer of a plan, which is sharded where there is a runtime."""
    if runtime is not None:
        fragments = fragments_of(plan)
        return answer_frame(runtime.run(fragments, CollectAnswer()), fragments)
    node = rewrite(plan)
    sink = CollectSink(node)
    drive(compile_plan(node, sink), default_rows(node))
    return sink.frame()
