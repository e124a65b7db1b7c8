"""Build outer joins from an inner join and the parts that match nothing."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from squill.plan.expressions import Expression, Scope, bind_one, column
from squill.plan.matching import Matching
from squill.plan.node import Node
from squill.plan.nodes import Exists, Join, Select, Union
from squill.plan.rebuild import rebuild
from squill.plan.schema import Schema

__all__ = ["lower_outer_join"]


def lower_outer_join(root: Node) -> Node:
    """Unite the pairs with the unmatched parts of one or both sides, nulls in the place of the other.

    ::

        join(how=left)        union
          left           →      join(how=inner)
          right                   left, right
                                select(…, null)
                                  exists(negated)
                                    left, right
    """

    def change(node: Node, _original: Node) -> Node:
        if not isinstance(node, Join) or node.how not in ("left", "right", "full"):
            return node
        parts: list[Node] = [replace(node, how="inner")]
        if node.how in ("left", "full"):
            parts.append(_unmatched_left(node))
        if node.how in ("right", "full"):
            parts.append(_unmatched_right(node))
        return Union(parents=tuple(parts))

    return rebuild(root, change)


def _unmatched_left(join: Join) -> Node:
    alone = Exists(left=join.left, right=join.right, matching=join.matching, negated=True)
    columns = {name: column(name, dtype) for name, dtype in join.left.schema.items()}
    return _padded(alone, columns, join.schema)


def _unmatched_right(join: Join) -> Node:
    matching = join.matching
    alone = Exists(left=join.right, right=join.left, matching=_mirrored(join), negated=True)
    schema = join.right.schema
    columns = {name: column(source, schema[source]).renamed(name) for name, source in matching.right_as}
    shown = {source for _, source in matching.right_as}
    # A key that has one column for both sides shows the side that is there.
    for left, right in zip(matching.left_keys, matching.right_keys, strict=True):
        if right not in shown:
            columns[left] = column(right, schema[right]).renamed(left)
    return _padded(alone, columns, join.schema)


def _padded(node: Node, columns: dict[str, Expression], schema: Schema) -> Node:
    """Return a Select of the join's columns, nulls where `node` has nothing to say."""
    chosen = [columns.get(name) or _null(name, dtype) for name, dtype in schema.items()]
    return Select(parent=node, columns=tuple(chosen))


def _null(name: str, dtype: pl.DataType) -> Expression:
    return bind_one(pl.lit(None, dtype=dtype), Scope(Schema(), None, ends_known=False), "join").renamed(name)


def _mirrored(join: Join) -> Matching:
    """Return how the right input's rows find left ones: the same pairs, seen from the other side."""
    matching = join.matching
    pair_name = {source: name for name, source in matching.right_as}
    # In a mirrored pair the right input's columns come first under their own names, so the condition is told
    # new names for all columns.
    left_as = tuple((f"__left_{name}", name) for name in join.left.schema if name not in matching.keys)
    where = None
    if matching.where is not None:
        shared = dict(zip(matching.left_keys, matching.right_keys, strict=True))
        new = {name: other for other, name in left_as}
        new.update({pair: source for source, pair in pair_name.items()})
        new.update({left: right for left, right in shared.items() if right not in pair_name})
        where = matching.where.over(new)
    return Matching(
        keys=matching.keys, left_on=matching.right_on, right_on=matching.left_on, where=where, right_as=left_as
    )
