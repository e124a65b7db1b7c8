"""What a stream can be asked for: its plan, and its answer in one of several forms."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from squill.arguments import checked_flag, is_one_of
from squill.errors import PlanError
from squill.plan.build import feeding
from squill.plan.explain import explain
from squill.plan.json_form import to_json
from squill.plan.node import Node
from squill.plan.rewrite import rewrite
from squill.wording import shortened

if TYPE_CHECKING:
    from squill.cluster import Cluster
    from squill.engine.arrow_function import ArrowFunction
    from squill.engine.subscription import Subscription
    from squill.plan.assignment import Assignment
    from squill.runtime.progressive.answers import EarlyAnswers
    from squill.runtime.progressive.early import EarlyAnswer
    from squill.stream import Stream

__all__ = ["StreamActions"]


class StreamActions:
    """The actions of `Stream`; whatever runs a query is loaded when one is called."""

    __slots__ = ()

    _node: Node
    _group: object | None

    def explain(self, stage: str = "logical", *, on: Cluster | None = None) -> str:
        """Return the plan as text, as written (`"logical"`) or as it runs (`"rewritten"`).

        With `on` it is the plan that the shards of that cluster run: its fragments, and how rows move between them.
        """
        if not is_one_of(stage, ("logical", "rewritten")):
            raise PlanError(f"explain: stage is {shortened(stage)}", 'use "logical" or "rewritten".')
        if on is not None:
            from squill.cluster import checked_cluster

            return checked_cluster(on, "explain").sharded(self._stream(), "explain").explain()
        return explain(self._node if stage == "logical" else rewrite(self._node))

    def to_json(self, *, allow_code: bool = False) -> str:
        """Return the plan as text, which `sq.from_json` reads; functions of yours are refused unless `allow_code`.

        Rows of frames are in the text, files are named.

        Examples
        --------
        >>> text = sq.from_frame({"t": [1, 2], "x": [3, 4]}, start="t").where(sq.col("x") > 3).to_json()
        >>> sq.from_json(text).collect().rows()
        [(2, 3, 4)]
        """
        checked_flag(allow_code, "to_json: allow_code")
        return to_json(self._node, allow_code=allow_code)

    def collect(self, sort: bool = False, *, on: Cluster | None = None, batch_rows: int | None = None) -> pl.DataFrame:
        """Run the query to its end and return the answer, ordered by start (`sort=True`: by every column).

        With `on` the shards of that cluster share the work: stored inputs are cut into parts, and rows that must
        meet are moved together; `explain(on=cluster)` shows how. The answer is the same.

        Examples
        --------
        >>> clicks = sq.from_frame({"t": [1, 2, 7], "ad": ["a", "b", "a"]}, start="t")
        >>> with sq.local(cores=2) as cluster:
        ...     clicks.group_apply("ad", lambda g: g.count()).collect(sort=True, on=cluster).rows()
        [(1, 2, 'a', 1), (2, 3, 'b', 1), (7, 8, 'a', 1)]
        """
        checked_flag(sort, "collect: sort")
        if on is not None:
            if batch_rows is not None:
                raise PlanError(
                    "collect: batch_rows goes with a run in this process", "leave it out, or leave on= out."
                )
            from squill.cluster import checked_cluster

            return checked_cluster(on, "collect").run(self._stream(), sort=sort)
        from squill.engine.run import collect

        return collect(self._outside(), sort=sort, batch_rows=batch_rows)

    def collect_events(self) -> list[Any]:
        """Run the query and return what flows: points, intervals, edges and punctuations, in order."""
        from squill.engine.run import collect_events

        return collect_events(self._outside())

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the answer to one parquet file, readable by `sq.scan(path, start="start", end="end")`."""
        from squill.engine.run import write_file

        return write_file(self._outside(), path, "parquet")

    def to_ipc(self, path: str | os.PathLike[str]) -> int:
        """Write the answer to one Arrow IPC file; returns the number of rows."""
        from squill.engine.run import write_file

        return write_file(self._outside(), path, "ipc")

    def as_arrow_function(self, input: str | None = None) -> ArrowFunction:  # noqa: A002  (the public name)
        """Return the query as a function of Arrow batches: Iterator[RecordBatch] → Iterator[RecordBatch].

        It is to run inside somebody else's task, such as Spark's `mapInArrow`: it can be pickled, and is fed rows
        of the query's input, with the input's own columns, in batches of any size. `input` names the input when
        there are several; the others are stored, and read by every call. A row of the answer, as `collect` gives
        it, comes out once its end is known. Rows of `sq.source(…)` go through its policy and those of an input
        that is promised `sorted_by` its start as they come; others wait for the last one, to be sorted.

        Examples
        --------
        >>> import pyarrow as pa
        >>> clicks = sq.source({"t": pl.Int64, "ad": pl.String}, start="t")
        >>> function = clicks.group_apply("ad", lambda g: g.tumbling_window(10).count()).as_arrow_function()
        >>> first = pa.record_batch({"t": [1, 4, 7], "ad": ["a", "a", "b"]})
        >>> for batch in function(iter([first, pa.record_batch({"t": [35], "ad": ["b"]})])):
        ...     print(batch.to_pylist())
        [{'start': 10, 'end': 20, 'ad': 'a', 'count': 2}, {'start': 10, 'end': 20, 'ad': 'b', 'count': 1}]
        [{'start': 40, 'end': 50, 'ad': 'b', 'count': 1}]
        """
        from squill.engine.arrow_function import ArrowFunction

        return ArrowFunction(feeding.fed(self._outside(), input))

    def subscribe(
        self,
        fn: Callable[[pl.DataFrame], object],
        emit: str = "changes",
        *,
        speculate: bool = False,
        restore: str | os.PathLike[str] | None = None,
        timer: bool = True,
    ) -> Subscription:
        """Call `fn` with frames of results as the sources are pushed, on the caller's thread; never twice at once.

        `emit="closed"` gives each row once, as (start, end, payload), when time has passed its end;
        `emit="changes"` gives rows (time, diff, payload) whose sum of diffs up to t is the answer at t.
        `speculate=True` takes rows that still wait for stragglers as if none came: after each flush the changes
        sum up to the answer over all rows pushed so far, and later ones take back what proved wrong.
        `restore=folder` goes on from what `Subscription.checkpoint(folder)` of the same query saved: push the
        rows that come after; stored inputs are not read again.
        Rows that wait under a source's `max_delay` are sent on by a thread of this subscription;
        `timer=False` starts none and leaves that to `Subscription.poll()`.
        An error, of `fn` or inside the query, stops the subscription and is raised by the push that led to it;
        one on the timer's thread by the next push, flush or poll.
        """
        from squill.engine.subscription import subscribe

        return subscribe(self._outside(), fn, emit, speculate=speculate, restore=restore, timer=timer)

    def progressive(
        self,
        assignment: Assignment | Mapping[str, Assignment] | None = None,
        *,
        coarsen: int | None = None,
        until: Callable[[EarlyAnswer], object] | float | None = None,
        ha: bool = False,
        on: Cluster | None = None,
    ) -> EarlyAnswers:
        """Answer the query over ever more of its rows; each answer is exactly that of the rows which are there.

        `assignment` says when rows come, one for all inputs or one for each by its name; see `squill.progress`. It may
        leave out what `to_storage(…, progress=…)` has put in its order, of which no more is read than answered. There
        is one answer per step, also when nothing changed; the last is the answer over all rows. An early answer has
        `progress`, `fraction` (of the rows), `frame`, `changes` since the one before, `is_final`, `elapsed` and
        `provenance()`. `coarsen=b` makes every progress point a multiple of b: starts floored, ends raised.
        `until` stops: a function of the early answer, or a number of seconds; the answer at which it does is the last.
        Leaving the loop stops the query and frees what it holds.

        A query over time takes `sq.progress.hashed(…)` of columns that all its keys contain. With `on` the shards of a
        cluster share the work; the answers are the same. On Spark a query whose task is lost runs again by itself and
        goes on with the next answer; with `ha` rows that have moved are kept in the cluster's folder, so that it need
        not read and order its inputs again. `status()` on the answers says which shard holds them back.

        Examples
        --------
        >>> clicks = sq.from_frame({"user": [1, 2, 3, 4], "ad": ["a", "b", "a", "a"]})
        >>> for early in clicks.group_aggregate("ad", n=sq.count()).progressive(sq.progress.rows(2)):
        ...     print(early.progress, early.fraction, early.is_final, early.frame.rows())
        0 0.5 False [('a', 1), ('b', 1)]
        1 1.0 True [('a', 3), ('b', 1)]
        """
        from squill.runtime.progressive.start import start_progressive

        if on is None:
            return start_progressive(self._outside(), assignment, coarsen=coarsen, until=until, ha=ha)
        from squill.cluster import checked_cluster

        cluster = checked_cluster(on, "progressive")
        return cluster.early_answers(self._stream(), assignment, coarsen=coarsen, until=until, ha=ha)

    def _stream(self) -> Stream:
        return cast("Stream", self)

    def _outside(self) -> Node:
        if self._group is not None:
            raise PlanError("a stream inside group_apply cannot be run by itself", "return it from the function.")
        return self._node
