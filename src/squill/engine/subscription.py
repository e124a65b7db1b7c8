"""Queries that run while their sources are pushed: results are handed to a function on the caller's thread.

Rows that wait for company under `max_delay` are sent on by a timer thread of the subscription, or by `poll`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl

from squill.arguments import checked_flag, is_one_of
from squill.engine.batch import Batch
from squill.engine.compile import Entry, Pipeline, compile_plan
from squill.engine.egress_changes import ChangesSink
from squill.engine.egress_closed import ClosedSink
from squill.engine.flush_timer import FlushTimer, is_kept, on_a_timer
from squill.engine.ingress_push import Failure, Feed
from squill.engine.operator import OperatorState
from squill.engine.run import drive_stored
from squill.engine.speculation import Speculation
from squill.engine.state.belonging import Belonging
from squill.engine.state.folder import StoredState
from squill.engine.state.journal import Journal
from squill.engine.turns import Turn, inside_a_turn, taking_turns
from squill.engine.user_code import hand_over
from squill.errors import CheckpointError, PlanError, SourceStateError
from squill.plan.node import Node
from squill.plan.nodes import PushSource
from squill.plan.paths import path_text
from squill.plan.rewrite import rewrite
from squill.wording import shortened

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

    def __init__(
        self,
        pipeline: Pipeline,
        sink: ChangesSink | ClosedSink,
        fn: Callback,
        journal: Journal,
        speculation: Speculation | None,
    ) -> None:
        self.pipeline = pipeline
        self._sink = sink
        self._fn = fn
        self._journal = journal
        self._speculation = speculation
        self._taps = [
            (source, Tap(self, entry)) for source, entry in pipeline.entries if isinstance(source, PushSource)
        ]
        self._feeds: list[Feed] = list({id(source.source): source.source for source, _ in self._taps}.values())
        self._timer: FlushTimer | None = None
        self._failure: Failure | None = None
        self.active = True
        self.error: BaseException | None = None

    @property
    def turns(self) -> list[Turn]:
        return [feed.turn for feed in self._feeds]

    def start_timer(self) -> None:
        """Let a thread send on rows that have waited for long enough, where there are any such."""
        waiting = [feed for feed in self._feeds if feed.waits and not feed.done]
        if waiting:
            self._timer = FlushTimer(waiting)
            weakref.finalize(self, self._timer.stop).atexit = False
            for feed in waiting:
                feed.watch(self._timer)

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
        if self._speculation is not None:
            self._speculation.load(state["early"])
        for (source, tap), saved in zip(self._taps, feeds.values(), strict=True):
            source.source.resume(tap, saved)

    def checkpoint(self, path: str | os.PathLike[str]) -> int:
        """Save the query's state to a folder, for `subscribe(fn, restore=path)`, and return the bytes written.

        Rows that wait for company are sent on first. The first checkpoint into a folder writes everything, the
        next ones into the same folder what has changed since; at any moment the folder holds the last one that
        was completed. A source that several queries share goes on from where it was when they were saved: save
        all of them between the same two pushes. Of several queries that were restored from one folder, the first
        to make a checkpoint there has it; the others need folders of their own.

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
        nested = self._feeds[0].turn.mine
        with taking_turns(self.turns) as ours:
            if not ours:
                raise CheckpointError(
                    "checkpoint: another thread is running the query, and this one is inside a function that was "
                    "given results, where it cannot wait",
                    "call checkpoint from outside.",
                )
            if not nested:
                for feed in self._feeds:
                    feed.send()
            self._refuse_stopped()
            with ExitStack() as still:
                for feed in self._feeds:
                    still.enter_context(feed.standing_still())
                return self._journal.checkpoint(folder, self._save())

    def _save(self) -> OperatorState:
        feeds = {f"{i}:{source.label}": source.source.save() for i, (source, _) in enumerate(self._taps)}
        names = [operator.node.name for operator in self.pipeline.operators] + ["results"]
        operators = {
            f"{i}:{name}": saved for i, (name, saved) in enumerate(zip(names, self.pipeline.save(), strict=True))
        }
        early = {} if self._speculation is None else {"early": self._speculation.save()}
        return {"feeds": feeds, "operators": operators, **early}

    def _refuse_stopped(self) -> None:
        if not self.active:
            raise CheckpointError(
                "checkpoint: the query was stopped, by stop() or by an error inside it: its state is gone",
                "restore the checkpoint before, if there is one.",
            )

    def poll(self) -> None:
        """Send on the rows that have waited for `max_delay`; to be called now and then with `timer=False`.

        An error that met the timer thread is raised here, if no push has raised it yet.

        Examples
        --------
        >>> import time, squill as sq
        >>> source = sq.source({"t": pl.Int64}, start="t", max_delay="1ms")
        >>> subscription = source.subscribe(lambda frame: print(frame.rows()), timer=False)
        >>> source.push({"t": [1, 2]})
        >>> time.sleep(0.002)
        >>> subscription.poll()
        [(1, 1)]
        """
        if self._failure is not None:
            self._failure.raise_once()
        if self.active:
            for feed in self._feeds:
                feed.poll()

    def stop(self) -> None:
        """Take no more rows; what has not been delivered is forgotten. Sources and other queries go on.

        Its function is not running any more when this returns, unless it is that function which called.
        """
        if inside_a_turn():
            self.end()
            return
        with taking_turns(self.turns):
            self.end()
        if self._timer is not None:
            self._timer.join()

    def end(self) -> None:
        """Let go of the sources and the timer."""
        self.active = False
        for source, tap in self._taps:
            source.source.detach(tap)
        if self._timer is not None:
            self._timer.stop()
            for feed in self._feeds:
                feed.unwatch(self._timer)

    def fail(self, error: BaseException) -> None:
        """End because of an error: the state is half way through some rows, and would give wrong answers."""
        self.error = error
        if on_a_timer():
            self._failure = Failure(error)
            for feed in self._feeds:
                feed.keep_failure(self._failure)
            is_kept(error)
        self.end()

    def deliver(self) -> None:
        """Call the function with what is ready, if anything is."""
        frame = self._sink.take() if self._speculation is None else self._speculation.take(self.pipeline)
        if frame is None:
            return
        hand_over(self._fn, frame)


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
        except BaseException as error:
            self._subscription.fail(error)
            raise


def subscribe(
    root: Node,
    fn: Callback,
    emit: str = "changes",
    *,
    speculate: bool = False,
    restore: str | os.PathLike[str] | None = None,
    timer: bool = True,
) -> Subscription:
    """Start the query; stored inputs beside the pushed ones are read at once, unless it is restored."""
    _check_arguments(fn, emit, speculate=speculate, timer=timer)
    stored = None if restore is None else StoredState(_folder(restore, "restore"))
    node = rewrite(root)
    if node.time is None:
        raise PlanError("subscribe: the query is relational: it has no times to follow", "use collect().")
    sink = ChangesSink(node) if emit == "changes" else ClosedSink(node)
    pipeline = compile_plan(node, sink)
    if not any(isinstance(source, PushSource) for source, _ in pipeline.entries):
        raise PlanError("subscribe: no source of this query is pushed", "use collect(), or feed it with sq.source.")
    belonging = Belonging.of(node, f"{emit}, speculate" if speculate else emit)
    journal = Journal(belonging.to_json())
    subscription = Subscription(pipeline, sink, fn, journal, Speculation(node) if speculate else None)
    with taking_turns(subscription.turns) as ours:
        if not ours:
            raise SourceStateError(
                "subscribe: another thread is pushing into a source of this query, and this one is inside a function "
                "that was given results, where it cannot wait",
                "subscribe before rows are pushed.",
            )
        if stored is None:
            subscription.attach()
            _or_end(subscription, lambda: drive_stored(pipeline))
        else:
            belonging.check(stored.manifest.plan, stored.folder)
            subscription.resume(stored.read())
            stored.go_on(journal)
        # Where this is called from inside a function that was given results, after that one has returned.
        subscription.turns[0].run(lambda: _or_end(subscription, subscription.deliver))
        if timer and subscription.active:
            subscription.start_timer()
    return subscription


def _or_end(subscription: Subscription, call: Callable[[], None]) -> None:
    """Call; a query that fails before it was handed out leaves nothing behind."""
    try:
        call()
    except BaseException as error:
        subscription.fail(error)
        raise


def _check_arguments(fn: object, emit: object, *, speculate: object, timer: object) -> None:
    if not is_one_of(emit, ("changes", "closed")):
        raise PlanError(f"subscribe: emit is {shortened(emit)}", 'use "changes" or "closed".')
    if not callable(fn):
        raise PlanError(f"subscribe: {shortened(fn)} cannot be called", "give a function of one frame.")
    checked_flag(speculate, "subscribe: speculate")
    checked_flag(timer, "subscribe: timer")
    if speculate and emit == "closed":
        raise PlanError(
            'subscribe: speculate=True with emit="closed": a closed row is final, an early answer is not',
            'use emit="changes", or leave speculate out.',
        )


def _folder(path: object, operator: str) -> Path:
    return Path(path_text(path, operator, 'give that of a folder, such as "checkpoint/".', CheckpointError)).absolute()
