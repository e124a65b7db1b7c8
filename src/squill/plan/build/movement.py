"""Build the nodes of sharded plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from squill.errors import PlanError
from squill.plan.build.aggregation import group_keys
from squill.plan.node import Node
from squill.plan.nodes.movement import Redistribute, Split
from squill.plan.schema import Schema

__all__ = ["redistribute", "rekey", "split"]

CANNOT_TRAVEL = (pl.Object, pl.Int128, pl.UInt128)


def split(node: Node, shards: int, operator: str) -> Node:
    return Split(parent=node, shards=_checked(shards, operator))


def rekey(node: Node, columns: Sequence[object], named: Mapping[str, object]) -> tuple[Node, tuple[str, ...]]:
    """Return the node with the key columns in it, and their names."""
    return group_keys(node, (), list(columns), named, "rekey")


def redistribute(node: Node, keys: tuple[str, ...], shards: int) -> Node:
    if not keys:
        raise PlanError("redistribute: the stream has no key", 'name one first: .rekey("column").')
    _refuse_bound_columns(node.schema)
    return Redistribute(parent=node, keys=keys, shards=_checked(shards, "redistribute"))


def _checked(shards: object, operator: str) -> int:
    if not isinstance(shards, int) or isinstance(shards, bool) or shards < 1:
        raise PlanError(f"{operator}: {shards!r} is not a number of shards", "give at least 1.")
    return shards


def _refuse_bound_columns(schema: Schema) -> None:
    for name, dtype in schema.items():
        if isinstance(dtype, CANNOT_TRAVEL):
            raise PlanError(
                f"redistribute: the column {name!r} is {dtype}, which cannot cross shards",
                "drop it before, or cast it to a type that Arrow files hold.",
            )
