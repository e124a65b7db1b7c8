"""Build the nodes of sharded plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from squill.arguments import is_one_of
from squill.errors import PlanError
from squill.plan.build.aggregation import group_keys
from squill.plan.expressions import Expression, bind_one
from squill.plan.layout import Layout
from squill.plan.live import Refresh
from squill.plan.node import Node
from squill.plan.nodes import Select, Source, WaitForEnds, Where
from squill.plan.nodes.movement import Move, Split
from squill.plan.routing import (
    CHANNELS,
    FLAT,
    SCOPES,
    BroadcastRouting,
    HashRouting,
    MulticastRouting,
    RoundRobinRouting,
    Routing,
)
from squill.plan.schema import Schema
from squill.wording import shortened

__all__ = [
    "Target", "broadcast", "checked_shards", "moved", "multicast", "redistribute", "refuse_bound_columns", "rekey",
    "reshard", "split",
]  # fmt: skip


class Target:
    """Where rows are to go, as the user gave it: the layout, the scope, and what carries them."""

    def __init__(self, before: Layout, layout: Layout, scope: str | None, channel: str | None, operator: str) -> None:
        if not is_one_of(scope, (None, *SCOPES)):
            raise PlanError(f"{operator}: scope is {shortened(scope)}", "use 'local' or 'global', or leave it out.")
        if not is_one_of(channel, (None, *CHANNELS)):
            raise PlanError(
                f"{operator}: channel is {shortened(channel)}", "use 'files' or 'shuffle', or leave it out."
            )
        self.scope = FLAT if scope is None else scope
        if self.scope != FLAT and layout != before:
            raise PlanError(
                f"{operator}: rows on {before} cannot move to {layout} with scope={scope!r}",
                "leave scope out to change the number of shards.",
            )
        if self.scope != FLAT and not layout.is_grid:
            raise PlanError(
                f"{operator}: scope={scope!r} needs machines of equally many shards, not {layout.shards} shards "
                f"on machines of {layout.cores}",
                f"use a multiple of {layout.cores} shards, or leave scope out.",
            )
        self.arguments: dict[str, Any] = {"layout": layout, "scope": self.scope, "channel": channel}


def split(node: Node, layout: Layout, refresh: Refresh | None = None) -> Node:
    return Split(parent=node, layout=layout, refresh=refresh)


def rekey(node: Node, columns: Sequence[object], named: Mapping[str, object]) -> tuple[Node, tuple[str, ...]]:
    """Return the node with the key columns in it, and their names."""
    return group_keys(node, (), list(columns), named, "rekey")


def redistribute(node: Node, keys: tuple[str, ...], target: Target) -> Node:
    if not keys:
        raise PlanError("redistribute: the stream has no key", 'name one first: .rekey("column").')
    return moved(node, HashRouting(keys=keys, **target.arguments))


def reshard(node: Node, keys: tuple[str, ...], target: Target) -> Node:
    packed = _packed(node)
    together = packed if packed and (not keys or set(packed) <= set(keys)) else ()
    if together and node.time is not None:
        # Rows flow in the order of time: those of a key stood together in the input, and do so no more.
        return moved(node, HashRouting(keys=together, **target.arguments))
    # An end edge must follow its start, and where that one went its values do not tell.
    closed = node if node.properties.ends_known else WaitForEnds(parent=node)
    return moved(closed, RoundRobinRouting(packed=together, **target.arguments))


def broadcast(node: Node, target: Target) -> Node:
    return moved(node, BroadcastRouting(**target.arguments))


def multicast(node: Node, shards: Any, target: Target) -> Node:
    if callable(shards) and not isinstance(shards, pl.Expr):
        return moved(node, MulticastRouting(function=shards, function_id=id(shards), **target.arguments))
    return moved(node, MulticastRouting(chosen=_shard_numbers(node, shards), **target.arguments))


def _shard_numbers(node: Node, shards: Any) -> Expression:
    chosen = bind_one(shards, node.scope, "multicast")
    dtype = chosen.dtype
    inner = dtype.inner if isinstance(dtype, (pl.List, pl.Array)) else dtype
    if not inner.is_integer():
        raise PlanError(
            f"multicast: {chosen} is {dtype}, not shard numbers",
            "give an expression of whole numbers or of lists of them, or a function of a row that returns them.",
        )
    return chosen


def _packed(node: Node) -> tuple[str, ...]:
    """Return the columns whose equal values stand together, as far as filters and selections keep it so."""
    kept: list[Select] = []
    while isinstance(node, (Where, Select, Split)):
        if isinstance(node, Select):
            kept.append(node)
        node = node.parent
    if not isinstance(node, Source) or node.promises is None:
        return ()
    columns = node.promises.packed
    unchanged = all(
        any(item.name == name == item.source_column for item in step.columns) for step in kept for name in columns
    )
    return columns if unchanged else ()


def moved(node: Node, routing: Routing) -> Node:
    """Return the node whose rows have gone the way that `routing` says."""
    refuse_bound_columns(node.schema, routing.verb)
    return Move(parent=node, routing=routing)


def checked_shards(shards: object, operator: str) -> int:
    if not isinstance(shards, int) or isinstance(shards, bool) or shards < 1:
        raise PlanError(f"{operator}: {shortened(shards)} is not a number of shards", "give at least 1.")
    return shards


def refuse_bound_columns(schema: Schema, operator: str) -> None:
    """Raise for a column that has no form outside the process that made it."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Object):
            raise PlanError(
                f"{operator}: the column {name!r} is {dtype}, which cannot cross shards",
                "drop it before, or turn it into a number or text with map_batches(…).",
            )
