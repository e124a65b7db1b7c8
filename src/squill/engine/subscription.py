"""Queries that run while their sources are pushed: results are handed to a function on the caller's thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from squill.engine.batch import Batch
from squill.engine.compile import Entry, Pipeline, compile_plan
from squill.engine.egress_changes import ChangesSink
from squill.engine.egress_closed import ClosedSink
from squill.engine.operator import OperatorState
from squill.engine.run import drive_stored
from squill.engine.state.belonging import Belonging
from squill.engine.state.folder import StoredState
from squill.engine.state.journal import Journal
from squill.errors import CheckpointError, PlanError
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

    def __init__(self, pipeline: Pipeline, sink: ChangesSink | ClosedSink, fn: Callback, journal: Journal) -> None:
        self.pipeline = pipeline
        self._sink = sink
        self._fn = fn
        self._journal = journal
        self._taps = [
            (source, Tap(self, entry)) for source, entry in pipeline.entries if isinstance(source, PushSource)
        ]
        self.active = True

    def attach(self) -> None:
        """Take rows from now on."""
        for source, tap in self._taps:
            source.source.attach(tap)

    def resume(self, state: OperatorState) -> None:
        """Take the place of the query that saved `state`, and rows from now on."""
        feeds: dict[str, Any] = state["feeds"]
        for (source, _), saved in zip(self._taps, feeds.values(), strict=True):
            source.source.check_resumable(saved)
        self.pipeline.load(list(state["operators"].values()))
        for (source, tap), saved in zip(self._taps, feeds.values(), strict=True):
            source.source.resume(tap, saved)

    def checkpoint(self, path: str | os.PathLike[str]) -> int:
        """Save the query's state to a folder, for `subscribe(fn, restore=path)`, and return the bytes written.

        Rows that wait for company are sent on first. The first checkpoint into a folder writes everything, the
        next ones into the same folder what has changed since; at any moment the folder holds the last one that
        was completed. A source that several queries share goes on from where it was when they were saved: save
        all of them between the same two pushes.

        Examples
        --------
        >>> import tempfile, squill as sq
        >>> def query(fn, restore=None):
        ...     source = sq.source({"t": pl.Int64}, start="t")
        ...     return source, source.tumbling_window(10).count().subscribe(fn, emit="closed", restore=restore)
        >>> source, subscription = query(lambda frame: print(frame.rows()))
        >>> source.push({"t": [1, 2, 3]})
        >>> folder = tempfile.mkdtemp()
        >>> written = subscription.checkpoint(folder)
        >>> again, _ = query(lambda frame: print(frame.rows()), restore=folder)
        >>> again.push({"t": [4, 25]})
        [(10, 20, 4)]
        """
        folder = _folder(path, "checkpoint")
        self._refuse_stopped()
        feeds = {f"{i}:{source.label}": source.source.save() for i, (source, _) in enumerate(self._taps)}
        self._refuse_stopped()
        names = [operator.node.name for operator in self.pipeline.operators] + ["results"]
        operators = {
            f"{i}:{name}": saved for i, (name, saved) in enumerate(zip(names, self.pipeline.save(), strict=True))
        }
        return self._journal.checkpoint(folder, {"feeds": feeds, "operators": operators})

    def _refuse_stopped(self) -> None:
        if not self.active:
            raise CheckpointError(
                "checkpoint: the query was stopped, by stop() or by an error inside it: its state is gone",
                "restore the checkpoint before, if there is one.",
            )

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


def subscribe(root: Node, fn: Callback, emit: str, restore: str | os.PathLike[str] | None = None) -> Subscription:
    """Start the query; stored inputs beside the pushed ones are read at once, unless it is restored."""
    if emit not in ("changes", "closed"):
        raise PlanError(f"subscribe: emit is {emit!r}", 'use "changes" or "closed".')
    if not callable(fn):
        raise PlanError(f"subscribe: {fn!r} cannot be called", "give a function of one frame.")
    stored = None if restore is None else StoredState(_folder(restore, "restore"))
    node = rewrite(root)
    if node.time is None:
        raise PlanError("subscribe: the query is relational: it has no times to follow", "use collect().")
    sink = ChangesSink(node) if emit == "changes" else ClosedSink(node)
    pipeline = compile_plan(node, sink)
    if not any(isinstance(source, PushSource) for source, _ in pipeline.entries):
        raise PlanError("subscribe: no source of this query is pushed", "use collect(), or feed it with sq.source.")
    belonging = Belonging.of(node, emit)
    journal = Journal(belonging.to_json())
    subscription = Subscription(pipeline, sink, fn, journal)
    if stored is None:
        subscription.attach()
        drive_stored(pipeline)
    else:
        belonging.check(stored.manifest.plan, stored.folder)
        subscription.resume(stored.read())
        stored.go_on(journal)
    subscription.deliver()
    return subscription


def _folder(path: object, what: str) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise CheckpointError(f"{what}: {path!r} is not the path of a folder", 'give a path, such as "checkpoint/".')
    return Path(path).absolute()
