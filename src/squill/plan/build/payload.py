"""Build nodes that change payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from squill.errors import PlanError
from squill.plan.build.checks import refuse_lost_codecs
from squill.plan.codec import Codec
from squill.plan.expressions import Expression, bind, bind_predicate, column
from squill.plan.node import Node
from squill.plan.nodes import MapBatches, Select, SelectMany, Where
from squill.plan.schema import Schema, require_type
from squill.wording import articled, shortened

__all__ = [
    "drop", "map_batches", "project", "rename", "returned_columns", "select", "select_many", "where", "with_columns",
]  # fmt: skip


def where(node: Node, predicates: Sequence[object]) -> Node:
    for predicate in predicates:
        node = Where(parent=node, predicate=bind_predicate(predicate, node.scope, "where"))
    return node


def project(node: Node, columns: Sequence[Expression], keys: Sequence[str], operator: str) -> Node:
    """Build a Select; inside a group the key columns stay, first and unchanged."""
    chosen = {item.name: item for item in columns}
    for key in keys:
        given = chosen.get(key)
        if given is not None and given.source_column != key:
            raise PlanError(
                f"{operator}: {key!r} is a key of this group and cannot be changed inside it",
                "give the new column another name.",
            )
    refuse_lost_codecs(operator, node.codecs, columns)
    key_columns = [column(key, node.schema[key]) for key in keys]
    rest = [item for item in columns if item.name not in keys]
    selected = Select(parent=node, columns=(*key_columns, *rest))
    if node.time is not None:
        selected.schema.without_time_names(operator)
    return selected


def select(node: Node, keys: Sequence[str], expressions: Sequence[object], named: Mapping[str, object]) -> Node:
    bound = bind(expressions, named, node.scope, "select")
    if not bound and not keys:
        raise PlanError("select: no column is given", "name at least one column.")
    return project(node, bound, keys, "select")


def with_columns(node: Node, keys: Sequence[str], expressions: Sequence[object], named: Mapping[str, object]) -> Node:
    bound = bind(expressions, named, node.scope, "with_columns")
    merged = {name: column(name, dtype) for name, dtype in node.schema.items()}
    merged.update({item.name: item for item in bound})
    return project(node, list(merged.values()), keys, "with_columns")


def drop(node: Node, keys: Sequence[str], names: Sequence[str]) -> Node:
    for name in names:
        if not isinstance(name, str):
            raise PlanError(
                f"drop: {shortened(name)} is {articled(type(name).__name__)}, not a column's name", "drop('a', 'b')"
            )
        node.schema.require(name, "drop")
        if name in keys:
            raise PlanError(f"drop: {name!r} is a key of this group", "drop it after the group.")
    kept = [column(name, dtype) for name, dtype in node.schema.items() if name not in names]
    return project(node, kept, keys, "drop")


def rename(node: Node, keys: Sequence[str], mapping: Mapping[str, str]) -> Node:
    if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping.values()):
        raise PlanError(f"rename: {shortened(mapping)} does not say new names for old ones", "rename({'old': 'new'})")
    for name in mapping:
        node.schema.require(name, "rename")
        if name in keys:
            raise PlanError(f"rename: {name!r} is a key of this group", "rename it after the group.")
    renamed = [column(name, dtype).renamed(mapping.get(name, name)) for name, dtype in node.schema.items()]
    names = [item.name for item in renamed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"rename: two columns would be called {twice!r}", "choose another name.")
    return project(node, renamed, keys, "rename")


def select_many(node: Node, keys: Sequence[str], given: object, schema: Mapping[str, Any] | None) -> Node:
    if callable(given) and not isinstance(given, pl.Expr):
        return map_batches(node, keys, given, schema, many=True)
    bound = bind([given], {}, node.scope, "select_many")
    if len(bound) != 1 or not isinstance(bound[0].dtype, (pl.List, pl.Array)):
        found = ", ".join(f"{item.name}: {item.dtype}" for item in bound)
        raise PlanError(
            f"select_many: {found} is not one list column",
            "give an expression of type List, as in sq.col('text').str.split(' ').alias('word').",
        )
    item = bound[0]
    merged = {name: column(name, dtype) for name, dtype in node.schema.items()}
    merged[item.name] = item
    widened = project(node, list(merged.values()), keys, "select_many")
    return SelectMany(parent=widened, column=item.name)


def map_batches(
    node: Node, keys: Sequence[str], function: Callable[..., Any], schema: Mapping[str, Any] | None, *, many: bool
) -> Node:
    operator = "select_many" if many else "map_batches"
    if not callable(function):
        raise PlanError(f"{operator}: {shortened(function)} is not a function", "give a function of a frame.")
    if schema is not None and not isinstance(schema, Mapping):
        raise PlanError(f"{operator}: schema is {shortened(schema)}", "map names to types: schema={'x': pl.Int64}.")
    given = _unchanged(node, operator) if schema is None else schema
    output, encoded = returned_columns(node, keys, given, operator)
    return MapBatches(
        parent=node,
        function=function,
        function_id=id(function),
        output=output,
        encoded=encoded,
        many=many,
        keys=tuple(keys),
    )


def _unchanged(node: Node, operator: str) -> Mapping[str, Any]:
    """Return what a function gives that changes no column's type."""
    for name in node.codecs:
        if isinstance(node.schema[name], pl.List):
            raise PlanError(
                f"{operator}: column {name!r} holds lists of Python objects; it is not said what becomes of it",
                f"name what the function returns: schema={{{name!r}: sq.codec(list, encode, decode), …}}.",
            )
    return {**node.schema, **node.codecs}


def returned_columns(
    node: Node, keys: Sequence[str], given: Mapping[str, Any], operator: str
) -> tuple[Schema, tuple[tuple[str, Codec], ...]]:
    """Return what a user's function gives: the key columns and the columns it returns, and their codecs."""
    keyed = {key: node.schema[key] for key in keys}
    own = {name: dtype for name, dtype in given.items() if name not in keyed}
    encoded = tuple((name, dtype) for name, dtype in own.items() if isinstance(dtype, Codec))
    output = Schema({**keyed, **{name: _column_type(name, dtype, operator) for name, dtype in own.items()}})
    return output.without_time_names(operator), encoded


def _column_type(name: str, dtype: Any, operator: str) -> pl.DataType:
    if isinstance(dtype, Codec):
        return pl.Binary()
    if dtype is pl.Object or isinstance(dtype, pl.Object):
        raise PlanError(
            f"{operator}: the column {name!r} holds Python objects, which cannot cross shards, files or checkpoints",
            "say how they become bytes: schema={'" + name + "': sq.codec(Type, encode, decode)}.",
        )
    return require_type(dtype, f"{operator}: schema says that column {name!r}")
