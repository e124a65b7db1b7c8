"""Queries that run while their sources are pushed: results are handed to a function on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from squill.engine.batch import Batch
from squill.engine.compile import Entry, Pipeline, compile_plan
from squill.engine.egress_changes import ChangesSink
from squill.engine.egress_closed import ClosedSink
from squill.engine.run import drive_stored
from squill.errors import PlanError
from squill.plan.node import Node
from squill.plan.nodes import PushSource
from squill.plan.rewrite import rewrite

__all__ = ["Subscription", "subscribe"]

Callback = Callable[[pl.DataFrame], object]


class Subscription:
    """A running query; `stop()` ends it, as does an error inside it.

    Examples
    --------
    >>> import squill as sq
    >>> source = sq.source({"t": pl.Int64, "x": pl.Int64}, start="t")
    >>> subscription = source.where(sq.col("x") > 1).subscribe(lambda frame: print(frame.rows()))
    >>> source.push({"t": [1, 2, 3], "x": [1, 2, 3]})
    [(2, 1, 2)]
    >>> subscription.stop()
    >>> subscription.active
    False
    """

    def __init__(self, pipeline: Pipeline, sink: ChangesSink | ClosedSink, fn: Callback) -> None:
        self.pipeline = pipeline
        self._sink = sink
        self._fn = fn
        self._taps = [
            (source, Tap(self, entry)) for source, entry in pipeline.entries if isinstance(source, PushSource)
        ]
        self.active = True
        for source, tap in self._taps:
            source.source.attach(tap)

    def stop(self) -> None:
        """Take no more rows; what has not been delivered is forgotten. Sources and other queries go on."""
        self.active = False
        for source, tap in self._taps:
            source.source.detach(tap)

    def deliver(self) -> None:
        """Call the function with what is ready, if anything is."""
        frame = self._sink.take()
        if frame is not None:
            self._fn(frame)


class Tap:
    """Where one source's rows enter one running query. An error stops the query and is passed on."""

    def __init__(self, subscription: Subscription, entry: Entry) -> None:
        self._subscription = subscription
        self._entry = entry

    def push(self, batch: Batch) -> None:
        self._guard(self._entry.push, batch)

    def advance(self, t: int) -> None:
        self._guard(self._entry.advance, t)

    def settle(self) -> None:
        self._guard(self._subscription.deliver)

    def _guard(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._subscription.active:
            return
        try:
            call(*arguments)
        except BaseException:
            # Its state is half way through these rows: going on would give wrong answers.
            self._subscription.stop()
            raise


def subscribe(root: Node, fn: Callback, emit: str) -> Subscription:
    """Start the query; stored inputs beside the pushed ones are read at once."""
    if emit not in ("changes", "closed"):
        raise PlanError(f"subscribe: emit is {emit!r}", 'use "changes" or "closed".')
    if not callable(fn):
        raise PlanError(f"subscribe: {fn!r} cannot be called", "give a function of one frame.")
    node = rewrite(root)
    if node.time is None:
        raise PlanError("subscribe: the query is relational: it has no times to follow", "use collect().")
    sink = ChangesSink(node) if emit == "changes" else ClosedSink(node)
    pipeline = compile_plan(node, sink)
    if not any(isinstance(source, PushSource) for source, _ in pipeline.entries):
        raise PlanError("subscribe: no source of this query is pushed", "use collect(), or feed it with sq.source.")
    subscription = Subscription(pipeline, sink, fn)
    drive_stored(pipeline)
    subscription.deliver()
    return subscription
