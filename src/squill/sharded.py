"""`ShardedStream`: a query whose shards, and the movements between them, are written by the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from squill.errors import PlanError
from squill.plan.build.aggregation import keys_first
from squill.plan.build.movement import redistribute, rekey
from squill.plan.fragments import explain_fragments, fragments_of
from squill.plan.node import Node
from squill.plan.placement import Placement, placement_of
from squill.plan.schema import Schema
from squill.stream import Stream
from squill.time import TimeType

if TYPE_CHECKING:
    from squill.cluster import Cluster

__all__ = ["ShardedStream"]


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

    __slots__ = ("_cluster", "_keys", "_node")

    def __init__(self, cluster: Cluster, node: Node, keys: tuple[str, ...] = ()) -> None:
        self._cluster = cluster
        self._node = node
        self._keys = keys

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

    def query(self, fn: Callable[[Stream], Stream]) -> ShardedStream:
        """Run the query `fn` on each shard by itself; with a key for each key apart, key columns first."""
        return ShardedStream(self._cluster, _apply(fn, self._node, self._keys), self._keys)

    def rekey(self, *columns: object, **named: pl.Expr) -> ShardedStream:
        """Group later queries by these columns; nothing moves. Key columns stay in the payload.

        A key that is not a plain column needs a name: ``rekey("a", h=sq.col("b") % 10)``.
        """
        return ShardedStream(self._cluster, *rekey(self._node, columns, named))

    def redistribute(self, to: int | None = None) -> ShardedStream:
        """Bring the rows of each key together on one shard; `to` is the number of shards, as many as before."""
        shards = self._cluster.shards if to is None else to
        return ShardedStream(self._cluster, redistribute(self._node, self._keys, shards), self._keys)

    def explain(self) -> str:
        """Return the plan as text: its fragments, where their rows live, and how they move."""
        return explain_fragments(self._node)

    def collect(self, *, sort: bool = False) -> pl.DataFrame:
        """Run the plan and return the answer, ordered by start (`sort=True`: by every column)."""
        from squill.runtime.collect import collect

        return collect(self._cluster.runtime, fragments_of(self._node), sort=sort)


def _apply(fn: Callable[[Stream], Stream], node: Node, keys: tuple[str, ...]) -> Node:
    if not callable(fn):
        raise PlanError(f"query: {fn!r} is not a function", "query(lambda s: s.count())")
    group = object()
    result = fn(Stream(node, keys, group))
    if not isinstance(result, Stream):
        raise PlanError(f"query: the function returned {type(result).__name__}, not a Stream", "return s.…")
    if result._group is not group:
        raise PlanError(
            "query: the function returned a stream that is not made from its argument",
            "use the argument only: lambda s: s.where(…).",
        )
    return keys_first(result.plan, keys, "query")
