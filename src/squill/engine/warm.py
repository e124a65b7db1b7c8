"""Compile the kernels of plans ahead, so that the first rows of a real run need not wait for them.

A plan is run over a few made-up rows: compiled code depends on types and on what is known of lifetimes, which are
those of the plan, and not on the rows. Filters and projections of the user's are not evaluated, functions of frames and
operators not called; what an aggregate, a join or a pattern computes is part of its loop, and is run on these rows.
Each plan has a process of its own, as many at a time as there are cores; what they compile is in the cache on disk,
where every process of this host finds it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from squill.engine.compile import compile_plan
from squill.engine.egress_closed import ClosedSink
from squill.engine.run import collect, drive
from squill.plan import serialise
from squill.plan.expression_text import serialise as expression_text
from squill.plan.expressions import Expression, column
from squill.plan.node import Node
from squill.plan.nodes import (
    Distinct,
    FrameSource,
    Lifetime,
    MapBatches,
    Promises,
    Select,
    SnapshotApply,
    Source,
    UserOperator,
    Where,
)
from squill.plan.rebuild import rebuild
from squill.plan.rewrite import rewrite
from squill.plan.schema import Schema

__all__ = ["made_up", "warm"]

ROWS = 64
"""Few, but more than one batch, and more than one instant."""
BATCH_ROWS = 16
START, END = "__squill_warm_start__", "__squill_warm_end__"


def warm(plans: Sequence[Node], processes: int | None = None) -> float:
    """Compile what these plans need; return how many seconds it took."""
    begin = time.perf_counter()
    limit = processes or len(os.sched_getaffinity(0))
    waiting = [serialise.dumps(made_up(plan)) for plan in plans]
    running: list[subprocess.Popen[bytes]] = []
    try:
        while waiting or running:
            while waiting and len(running) < limit:
                running.append(_started(waiting.pop(0)))
            _check(running.pop(0))
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return time.perf_counter() - begin


def _started(plan: bytes) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from squill.engine.warm import main; main()"]
    search = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(  # noqa: S603  (our own code)
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": search}
    )
    assert process.stdin is not None
    process.stdin.write(plan)
    process.stdin.close()
    process.stdin = None
    return process


def _check(process: subprocess.Popen[bytes]) -> None:
    _, said = process.communicate()
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
        warnings.warn(f"warm: not all of a plan could be compiled ahead: {last[0]}", UserWarning, stacklevel=4)


def main() -> None:
    """Run one plan, given on standard input."""
    root: Node = serialise.loads(sys.stdin.buffer.read())
    collect(root, batch_rows=BATCH_ROWS)
    node = rewrite(root)
    drive(compile_plan(node, ClosedSink(node)), BATCH_ROWS)


def made_up(root: Node) -> Node:
    """Return the plan over made-up rows: sources and users' functions are replaced, filters let nearly all pass."""
    return rebuild(root, lambda node, _: _replaced(node))


def _replaced(node: Node) -> Node:
    match node:
        case Where():
            return replace(node, predicate=_all_but_one(node))
        case Select():
            return replace(node, columns=tuple(_constant(item) for item in node.columns))
        case Source() | MapBatches() | UserOperator() | SnapshotApply():
            return _source(node)
    return node


def _all_but_one(node: Where) -> Expression:
    """Return a filter over one of the filter's own columns that lets nearly all made-up rows pass."""
    for name in node.predicate.roots:
        dtype = node.parent.schema.get(name)
        if dtype is not None and (dtype.is_numeric() or isinstance(dtype, pl.String)):
            condition = pl.col(name) != _values(name, dtype)[0]
            return Expression(expression_text(condition), name, pl.Boolean(), (name,))
    return Expression(expression_text(pl.lit(True)), "all", pl.Boolean(), ())


def _constant(item: Expression) -> Expression:
    """Return a column as it is, and instead of what is computed a value of its type."""
    if item.source_column is not None:
        return item
    value = _values("", item.dtype)[1]
    constant = pl.lit(None if isinstance(value, (list, dict, pl.Series)) else value).cast(item.dtype)
    return Expression(expression_text(constant), item.name, item.dtype, ())


def _source(node: Node) -> Node:
    """Return made-up rows of which as much is known as of the node's."""
    columns = dict(node.schema)
    lifetime, promises = None, Promises()
    if node.time is not None:
        known = node.properties
        columns |= {START: node.time.dtype, END: node.time.dtype}
        start, end = column(START, node.time.dtype), column(END, node.time.dtype)
        is_plain = known.endless or known.duration == 1
        lifetime = Lifetime(start=start, end=None if is_plain else end, kind="open" if known.endless else "point")
        promises = Promises(duration=None if is_plain else known.duration)
    frame = pl.DataFrame([_values(name, dtype) for name, dtype in columns.items()])
    if node.time is not None and not node.properties.endless:
        ends = pl.col(START).to_physical() + (node.properties.duration or 3)
        frame = frame.with_columns(ends.cast(node.time.dtype).alias(END))
    payload = FrameSource(
        label="made up",
        columns=Schema(columns),
        lifetime=lifetime,
        promises=promises,
        frame=frame,
        frame_id=id(frame),
    )
    rows = Select(parent=payload, columns=tuple(column(name, dtype) for name, dtype in node.schema.items()))
    return rows if node.properties.ends_known else Distinct(parent=rows)


def _values(name: str, dtype: pl.DataType) -> pl.Series:
    """Return values in order, all different where the type has as many."""
    numbers = pl.Series(name, range(ROWS), dtype=pl.Int64)
    if isinstance(dtype, (pl.String, pl.Binary, pl.Categorical)):
        return (numbers + 1000).cast(pl.String).cast(dtype)
    if isinstance(dtype, pl.Enum):
        return pl.Series(name, [dtype.categories[i % len(dtype.categories)] for i in range(ROWS)], dtype=dtype)
    if dtype.is_numeric() or dtype.is_temporal() or isinstance(dtype, pl.Boolean):
        return numbers.cast(pl.Int32).cast(dtype) if isinstance(dtype, pl.Date) else numbers.cast(dtype)
    return pl.Series(name, [None] * ROWS, dtype=dtype)
