"""`ShardedStream`: a query whose shards, and the movements between them, are written by the user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

import polars as pl

from squill.arguments import check_takes_streams, checked_flag
from squill.errors import PlanError
from squill.plan.build import movement
from squill.plan.build.aggregation import keys_first, union
from squill.plan.build.meeting import check_keys_alike, meeting
from squill.plan.build.names import with_free_names
from squill.plan.build.sources import brought_source, elsewhere_source
from squill.plan.copies import check_copies
from squill.plan.dataset import Dataset, stored_sources
from squill.plan.fragments import fragments_of
from squill.plan.layout import Layout
from squill.plan.node import Node, walk
from squill.plan.nodes.tables import ElsewhereSource
from squill.plan.placement import Placement, layout_of, placement_of
from squill.plan.rebuild import substitute
from squill.plan.schema import Schema
from squill.stream import Stream
from squill.time import Duration, TimeType
from squill.wording import kind_of, shortened

if TYPE_CHECKING:
    from squill.cluster import Cluster
    from squill.plan.assignment import Assignment
    from squill.runtime.collect import Run
    from squill.runtime.live.handle import LiveQuery
    from squill.runtime.progressive.answers import EarlyAnswers
    from squill.runtime.progressive.early import EarlyAnswer

__all__ = ["ShardedStream"]

QUERY_EXAMPLES = "query(lambda s: s.count()), or query(other, lambda l, r: l.join(r))."


class ShardedStream:
    """Events that live on the shards of a cluster, and what is to be done with them there.

    It is immutable: every method returns a new one, and nothing runs until an answer is asked for. With a key
    (`rekey`) a query runs for each key apart; `redistribute` brings each key together on one shard.

    Examples
    --------
    >>> import squill as sq
    >>> with sq.local(cores=2) as cluster:
    ...     clicks = cluster.from_frame({"t": [1, 2, 7], "ad": ["a", "b", "a"]}, start="t")
    ...     counts = clicks.rekey("ad").redistribute().query(lambda ad: ad.sliding_window(10).count())
    ...     counts.collect(sort=True)
    shape: (4, 4)
    ┌───────┬─────┬─────┬───────┐
    │ start ┆ end ┆ ad  ┆ count │
    │ ---   ┆ --- ┆ --- ┆ ---   │
    │ i64   ┆ i64 ┆ str ┆ i64   │
    ╞═══════╪═════╪═════╪═══════╡
    │ 1     ┆ 7   ┆ a   ┆ 1     │
    │ 2     ┆ 12  ┆ b   ┆ 1     │
    │ 7     ┆ 11  ┆ a   ┆ 2     │
    │ 11    ┆ 17  ┆ a   ┆ 1     │
    └───────┴─────┴─────┴───────┘
    """

    __slots__ = ("_cluster", "_keys", "_layout", "_node")

    def __init__(self, cluster: Cluster, node: Node, keys: tuple[str, ...] = ()) -> None:
        self._cluster = cluster
        self._node = with_free_names(node)
        self._keys = keys
        self._layout = layout_of(node)

    @property
    def layout(self) -> Layout:
        """How many shards it lives on, and how they are arranged."""
        return self._layout

    @property
    def schema(self) -> Schema:
        """The payload columns and their types."""
        return self._node.schema

    @property
    def time(self) -> TimeType | None:
        """The type of the lifetimes; None for relational data."""
        return self._node.time

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that group queries; none before `rekey`."""
        return self._keys

    @property
    def placement(self) -> Placement | None:
        """Which columns decide a row's shard; None when nothing is known of it."""
        return placement_of(self._node)

    @property
    def plan(self) -> Node:
        """The logical plan, movements included."""
        return self._node

    def __repr__(self) -> str:
        time = "relational" if self.time is None else f"time {self.time}"
        keyed = f"; keyed by {', '.join(self._keys)}" if self._keys else ""
        return f"ShardedStream({self.schema!r}; {time}{keyed})"

    @overload
    def query(self, fn: Callable[[Stream], Stream], /) -> ShardedStream: ...
    @overload
    def query(self, other: ShardedStream, fn: Callable[[Stream, Stream], Stream], /) -> ShardedStream: ...
    def query(self, *arguments: Any) -> ShardedStream:
        """Run a query on each shard by itself; with a key for each key apart, key columns first.

        ``query(fn)`` gives `fn` this stream, ``query(other, fn)`` this one and another on as many shards. With a
        key both must have the same one, and live where rows of equal keys meet: an input that is not placed is
        redistributed like the other.
        """
        *others, fn = arguments or (None,)
        if not callable(fn) or len(others) > 1 or not all(isinstance(other, ShardedStream) for other in others):
            raise PlanError(
                f"query: it takes a function, or a sharded stream and a function; found {shortened(arguments)}",
                QUERY_EXAMPLES,
            )
        nodes = [self._node]
        for other in others:
            self._check_fits(other, "query")
            check_keys_alike(self._node, other.plan, self._keys, other.keys, "query")
            nodes = list(meeting(self._node, other.plan, self._keys, self._layout))
        made = _apply(fn, nodes, self._keys)
        if others:
            check_copies(made)
        return ShardedStream(self._cluster, made, self._keys)

    def rekey(self, *columns: object, **named: pl.Expr) -> ShardedStream:
        """Group later queries by these columns; nothing moves. Key columns stay in the payload.

        A key that is not a plain column needs a name: ``rekey("a", h=sq.col("b") % 10)``.
        """
        return ShardedStream(self._cluster, *movement.rekey(self._node, columns, named))

    def redistribute(
        self, to: int | Cluster | None = None, scope: str | None = None, *, channel: str | None = None
    ) -> ShardedStream:
        """Bring the rows of each key together on one shard.

        `to` is the number of shards, as many as before unless told, or another cluster, whose shards the rows go to
        and where the plan goes on. `scope` bounds who a shard sends to: "local"
        those of its machine, "global" those of its local index on other machines. `channel` is what carries the
        rows of this movement on Spark, "files" or "shuffle"; the cluster's own choice unless told.
        """
        here, target = self._target(to, scope, channel, "redistribute")
        return here._with(movement.redistribute(here._node, here._keys, target))

    def reshard(
        self, to: int | Cluster | None = None, scope: str | None = None, *, channel: str | None = None
    ) -> ShardedStream:
        """Spread rows evenly: blocks of rows go to the shards in turn.

        Rows of a packed key stay together; where they have times, and so others between them, by the hash of that key.
        """
        here, target = self._target(to, scope, channel, "reshard")
        return here._with(movement.reshard(here._node, here._keys, target))

    def broadcast(
        self, to: int | Cluster | None = None, scope: str | None = None, *, channel: str | None = None
    ) -> ShardedStream:
        """Send every row to every shard; with scope "global" each machine gets one copy, spread over its shards."""
        here, target = self._target(to, scope, channel, "broadcast")
        return here._with(movement.broadcast(here._node, target))

    def multicast(
        self,
        shards: pl.Expr | str | Callable[[dict[str, Any]], Any],
        to: int | Cluster | None = None,
        scope: str | None = None,
        *,
        channel: str | None = None,
    ) -> ShardedStream:
        """Send each row to the shards that `shards` names: none, one or several.

        It is an expression that gives a number or a list of numbers, or a function of a payload row (a dict) that
        returns them, of the row's values alone. With a scope the numbers count the shards in scope.
        """
        here, target = self._target(to, scope, channel, "multicast")
        return here._with(movement.multicast(here._node, shards, target))

    def union(self, *others: ShardedStream) -> ShardedStream:
        """Put streams together, shard by shard; all on as many shards, with the same columns."""
        for other in others:
            if not isinstance(other, ShardedStream):
                raise PlanError(
                    f"union: {shortened(other)} is not a sharded stream", "give what a cluster's methods return."
                )
            self._check_fits(other, "union")
        same_keys = all(other.keys == self._keys for other in others)
        node = union([self._node, *(other.plan for other in others)])
        return ShardedStream(self._cluster, node, self._keys if same_keys else ())

    def _target(
        self, to: int | Cluster | None, scope: str | None, channel: str | None, operator: str
    ) -> tuple[ShardedStream, movement.Target]:
        """Return what is to be moved, which another cluster brings to itself first, and where it is to go."""
        if to is None or isinstance(to, int):
            here, layout = self, self._layout if to is None else self._cluster.layout(to, operator)
        elif not hasattr(to, "runtime"):
            raise PlanError(f"{operator}: to={shortened(to)} is no place", "give a number of shards, or a cluster.")
        else:
            here = self if to is self._cluster else ShardedStream(to, self._elsewhere(to, operator), self._keys)
            layout = to.layout()
        target = movement.Target(here._layout, layout, scope, channel, operator)
        if channel is not None:
            here._cluster.runtime.refuse_channel(channel, operator)
        return here, target

    def _elsewhere(self, to: Cluster, operator: str) -> Node:
        return movement.split(elsewhere_source(self, self._node, operator), to.layout())

    def _with(self, node: Node) -> ShardedStream:
        return ShardedStream(self._cluster, node, self._keys)

    def _check_fits(self, other: ShardedStream, operator: str) -> None:
        if other._cluster is not self._cluster:
            raise PlanError(f"{operator}: the inputs live on different clusters", "move one of them there first.")
        if other.layout != self._layout:
            raise PlanError(
                f"{operator}: the inputs live on {self._layout} and on {other.layout}",
                f"bring them to equally many: redistribute(to={self._layout.shards}), or reshard or broadcast.",
            )

    def explain(self) -> str:
        """Return the plan as text: its fragments, where their rows live, and how they move.

        After ``~`` stands what is estimated of sources and movements, from what files say of themselves and by simple
        rules (a filter keeps a third of the rows); no data is read. Of a plan that goes on on another cluster all parts
        are shown, each with its cluster, in the order in which they run.
        """
        parts = self._explained()
        if len(parts) == 1:
            return parts[0][1]
        return "\n".join(f"on {cluster}:\n{text}" for cluster, text in parts)

    def _explained(self) -> list[tuple[Cluster, str]]:
        """Return the plan as text, after those on other clusters that bring it rows."""
        from squill.runtime.estimate import explain_with_sizes

        brought = [node.stream._explained() for node in walk(self._node) if isinstance(node, ElsewhereSource)]
        return list(dict.fromkeys([*chain.from_iterable(brought), (self._cluster, explain_with_sizes(self._node))]))

    def collect(self, *, sort: bool = False) -> pl.DataFrame:
        """Run the plan and return the answer, ordered by start (`sort=True`: by every column)."""
        checked_flag(sort, "collect: sort")
        return self._cluster.recorder.collect(self._ready(), sort=sort)

    def run(self) -> Run:
        """Run the plan and return the answer with a report: ``run.frame``, ``run.report()``, ``run.id``."""
        return self._cluster.recorder.run(self._ready())

    def subscribe(self, fn: Callable[[pl.DataFrame], object]) -> None:
        """Run the plan and call `fn` with frames of the answer, one per shard that has rows, as shards finish.

        An error of `fn` stops the run, and is raised as the cause of a `UserFunctionError`.
        """
        if not callable(fn):
            raise PlanError(f"subscribe: {shortened(fn)} is not a function", "subscribe(print)")
        from squill.engine.user_code import hand_over

        for frame in self.batches():
            hand_over(fn, frame)

    def start(
        self,
        sink: Any,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: Duration | None = "1s",
        emit: str = "closed",
        until_now: bool = False,
        complete: bool = True,
        speculate: bool = False,
        bootstrap: Any = None,
        memory: int | None = None,
    ) -> LiveQuery:
        """Run the plan over its live inputs, epoch by epoch; return a handle: `status()`, `stop()`, `wait()` and more.

        `sink` is a function of a frame (and, if it takes two arguments, the epoch's number), the path of a folder,
        which gets parquet files (`sq.folder` for others), "console", or `sq.table("db.t")` on Spark. With
        `emit="closed"` it gets each row of the answer once, when its end has come; with "changes" rows (time, diff,
        payload).

        An epoch begins `every` so often when there is something new. `checkpoint` is a folder that keeps what was
        committed: the same call goes on from there, after `stop()` as after a crash. A folder as sink then has every
        row exactly once; a function is given the last epoch again if the process died while it ran. Without a
        checkpoint the query lives and dies with this process.

        With `until_now` what is there at the start is processed and the query ends: all windows are closed, or, with
        `complete=False`, stay open in the checkpoint for a later start.

        `memory` is how many bytes the states of all shards of a process may take, half of what its machine has unless
        told. What is beyond it stays in files and is read when its turn comes; without a checkpoint only if `memory` is
        given.

        With `bootstrap` the query does not begin with nothing, but where a run over stored rows has ended: it is the
        dataset, its path or its name, that the same plan over stored inputs has made with
        `to_storage(…, keep_state=True)`. The dataset's rows and those of this query together are the answer over
        all rows; live rows before the time that the stored ones had come to are late. A checkpoint that is there
        already is gone on with.
        """
        return self._prepared(
            sink,
            checkpoint=checkpoint,
            every=every,
            emit=emit,
            until_now=until_now,
            complete=complete,
            speculate=speculate,
            bootstrap=bootstrap,
            memory=memory,
        ).begin()

    def _prepared(self, sink: Any, **options: Any) -> LiveQuery:
        """Return what `start` begins, for `squill.testing`."""
        from squill.runtime.live.start import prepare_live

        given = options.pop("bootstrap", None)
        if given is not None and not isinstance(given, (Dataset, str, os.PathLike)):
            raise PlanError(
                f"start: bootstrap is {shortened(given)}",
                "give what to_storage(…, keep_state=True) has returned, or its path.",
            )
        find = None if given is None else lambda: self._cluster.stored.found(given, "start: bootstrap")
        return prepare_live(self._ready_in_process(), self._cluster.runtime, sink, bootstrap=find, **options)

    def progressive(
        self,
        assignment: Assignment | Mapping[str, Assignment] | None = None,
        *,
        coarsen: int | None = None,
        until: Callable[[EarlyAnswer], object] | float | None = None,
        ha: bool = False,
    ) -> EarlyAnswers:
        """Answer the plan over ever more of its rows while its shards run; see `Stream.progressive`.

        The answers do not depend on how many shards there are.
        """
        from squill.runtime.progressive.start import start_progressive

        return start_progressive(
            self._ready_in_process(),
            assignment,
            coarsen=coarsen,
            until=until,
            ha=ha,
            runtime=self._cluster.runtime,
            spread=self._cluster.spread,
        )

    def to_spark(self) -> Any:
        """Return the answer as a Spark DataFrame; it is computed when Spark is asked for its rows.

        So an error comes from Spark too, as its `PythonException`, at the end of whose text the error stands that
        `collect()` would have raised: its name, the fragment, shard and operator, what was found, and the hint.
        """
        return self._cluster.runtime.to_table(fragments_of(self._ready()))

    def batches(self) -> Iterator[pl.DataFrame]:
        """Run the plan and yield the answer in frames, one per shard that has rows, as shards finish.

        In which order shards finish is not said; the rows of a frame are ordered by start. On Spark they come as
        tasks of the last stage finish (over Spark Connect, when all have). A few frames are held; then the run, or
        on Spark rows in files, wait for the loop. Leaving it stops the run and cancels its jobs.
        """
        return self._cluster.recorder.batches(self._ready())

    def to_storage(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        progress: Assignment | None = None,
        *,
        format: str = "parquet",  # noqa: A002  (the public name)
        mode: str = "error",
        keep_state: bool = False,
    ) -> Dataset:
        """Run the plan and write the answer to a folder, a file per shard, visible all at once when it is whole.

        The folder is a dataset: `scan(path)` knows its types, its key and on which shard each key is, so that
        what was redistributed is not moved again. `format` is "parquet" or "ipc". A dataset that is there
        already is replaced with `mode="overwrite"` only, and stays until the new one is whole. With a `name` it
        is entered in the catalog with its plan, and lost files are computed again.

        With `keep_state` the inputs are taken as they are up to now, not as all there will be: the dataset has the
        rows that are final by then, and the folder keeps the state of all others, windows that are open and rows
        that may still be joined. `start(…, bootstrap=dataset)` goes on from there with rows that follow. Inputs that
        go on are the live ones of the plan; if there are none, all that have times.

        With `progress`, one of `squill.progress`, the rows of each file are in its order, with their steps in a column
        beside the others, and row groups end where steps do. `progressive()` over the dataset then reads no more than
        what its answers have come to. Rows are numbered round robin over the shards.
        """
        from squill.runtime.store import Wanted

        checked_flag(keep_state, "to_storage: keep_state")
        wanted = Wanted(
            node=self._brought(),
            keys=self._keys,
            path=path,
            name=name,
            format=format,
            mode=mode,
            keep_state=keep_state,
            progress=progress,
        )
        return self._cluster.stored.store(wanted)

    def to_memory(self, name: str, *, mode: str = "error") -> Dataset:
        """Run the plan and keep the answer in the cluster's memory, for `cluster.dataset(name)`.

        Any client of the same catalog finds it while the cluster lives: on Spark on one host the rows are in a
        memory filesystem, on several in Spark's cache, of a local cluster in this process. Processes that cannot read
        them there compute them again.
        `cluster.remove(name)` and `cluster.close()` free them.
        """
        from squill.runtime.store import Wanted

        wanted = Wanted(node=self._brought(), keys=self._keys, path="", name=name, mode=mode, operator="to_memory")
        return self._cluster.stored.remember(wanted)

    def to_ipc(self, path: str | os.PathLike[str], *, mode: str = "error") -> int:
        """Run the plan and write the answer to a folder of Arrow files, one per shard; return the number of rows."""
        from squill.runtime.store import Wanted

        wanted = Wanted(node=self._brought(), keys=self._keys, path=path, format="ipc", mode=mode, operator="to_ipc")
        return self._cluster.stored.store(wanted).rows

    def _ready(self) -> Node:
        """Return the plan; what it reads of datasets that were lost is made again."""
        node = self._brought()
        return self._cluster.stored.ready(node) if stored_sources(node) else node

    def _ready_in_process(self) -> Node:
        """Return the plan as `_ready` does, for what cannot read the memory of a runtime."""
        return self._cluster.stored.in_process(self._ready())

    def _brought(self) -> Node:
        """Return the plan with the rows of other clusters, which run their own part of it now."""

        def bring(node: Node) -> Node | None:
            return brought_source(node, node.stream.collect()) if isinstance(node, ElsewhereSource) else None

        return substitute(self._node, bring)


def _apply(fn: Callable[..., Stream], nodes: list[Node], keys: tuple[str, ...]) -> Node:
    group = object()
    check_takes_streams(fn, len(nodes), "query", QUERY_EXAMPLES)
    result = fn(*(Stream(node, keys, group) for node in nodes))
    if not isinstance(result, Stream):
        raise PlanError(f"query: the function returned {kind_of(result)}, not a Stream", "return s.…")
    if result._group is not group:
        raise PlanError(
            "query: the function returned a stream that is not made from its argument",
            "use the argument only: lambda s: s.where(…).",
        )
    return keys_first(result.plan, keys, "query")
