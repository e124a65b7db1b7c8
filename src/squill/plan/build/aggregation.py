"""Build aggregates, groups' keys, distinct and union."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from squill.errors import ColumnNotFoundError, PlanError
from squill.plan.aggregates import AggregateExpr, BoundAggregate, bind_call, calls_of, distinct_calls
from squill.plan.build.checks import (
    check_key_type,
    check_same_time,
    refuse_lost_codecs,
    refuse_object_order,
    refuse_objects,
)
from squill.plan.build.payload import project
from squill.plan.codec import Codec
from squill.plan.confidence import ConfidenceExpr, Estimated
from squill.plan.expressions import Expression, Scope, bind, bind_one, column
from squill.plan.node import Node
from squill.plan.nodes import Aggregate, Distinct, Union
from squill.plan.nodes.aggregation import codecs_of_calls
from squill.plan.schema import Schema

__all__ = ["aggregate", "distinct", "group_keys", "keys_first", "union"]


def aggregate(node: Node, keys: Sequence[str], named: Mapping[str, object]) -> Node:
    wanted = calls_of(dict(named))
    if not wanted:
        raise PlanError("aggregate: nothing to compute", "name at least one: aggregate(n=sq.count()).")
    for name in wanted:
        if name in keys:
            raise PlanError(f"aggregate: {name!r} is a key of this group", "choose another name for the result.")
    bound = tuple(bind_call(call, node.scope) for call in distinct_calls(wanted))
    placeholders = Schema((call.placeholder, call.dtype) for call in bound)
    scope = Scope(placeholders, None, ends_known=False)
    columns = tuple(_output(name, expr, scope) for name, expr in wanted.items())
    _check_objects(node.codecs, bound, columns)
    estimated = tuple(expr.named(name) for name, expr in wanted.items() if isinstance(expr, ConfidenceExpr))
    _check_numbers(estimated, bound)
    built = Aggregate(parent=node, keys=tuple(keys), calls=bound, columns=columns, estimated=estimated)
    if node.time is not None:
        built.schema.without_time_names("aggregate")
    return built


def _check_objects(codecs: Mapping[str, Codec], calls: Sequence[BoundAggregate], columns: Sequence[Expression]) -> None:
    """Raise where objects would be ordered by their bytes, or would come out as bytes."""
    for call in calls:
        operator = f"aggregate {call.kind}"
        ranked = call.inputs if call.kind in ("min", "max", "top_k") else ()
        refuse_object_order(operator, codecs, (*ranked, *call.order_by))
        refuse_lost_codecs(operator, codecs, (*call.inputs, *call.order_by))
        if call.kind == "top_k" and codecs:
            raise PlanError(
                f"aggregate top_k: column {next(iter(codecs))!r} holds Python objects, which cannot be in the rows of "
                "its result",
                "leave it out with .drop(…) before, and join it to the result by a key of yours.",
            )
    refuse_lost_codecs("aggregate", codecs_of_calls(calls, codecs), columns)


def _check_numbers(estimated: Sequence[Estimated], calls: Sequence[BoundAggregate]) -> None:
    by_name = {call.placeholder: call for call in calls}
    for item in estimated:
        for call in (by_name[name] for name in item.of):
            if not call.dtype.is_numeric():
                raise PlanError(
                    f"sq.ci.{item.kind}: {call} is {call.dtype}, not a number",
                    "cast it first, as in sq.col('took').dt.total_seconds().",
                )


def _output(name: str, given: AggregateExpr, scope: Scope) -> Expression:
    return bind_one(given.expr, scope, f"aggregate {name}").renamed(name)


def group_keys(
    node: Node, outer: Sequence[str], keys: object, named: Mapping[str, object], operator: str
) -> tuple[Node, tuple[str, ...]]:
    """Return the node with the key columns in it, and the names of all keys, the outer ones first."""
    given = list(keys) if isinstance(keys, (list, tuple)) else [] if keys is None else [keys]
    computed = dict(named)
    if isinstance(keys, Mapping):
        given, computed = [], {**keys, **named}
    bound = bind(given, computed, node.scope, operator)
    if not bound:
        raise PlanError(f"{operator}: no key is given", "name at least one column to group by.")
    for item in bound:
        _check_key(item, computed, node, operator)
    new = [item for item in bound if item.source_column != item.name]
    if new:
        merged = {name: column(name, dtype) for name, dtype in node.schema.items()}
        merged.update({item.name: item for item in new})
        node = project(node, list(merged.values()), outer, operator)
    names = tuple(dict.fromkeys([*outer, *(item.name for item in bound)]))
    return node, names


def _check_key(item: Expression, named: Mapping[str, object], node: Node, operator: str) -> None:
    if item.source_column is None and item.name not in named and (item.name in node.schema or not item.roots):
        raise PlanError(
            f"{operator}: the key {item} is not a plain column and needs a name of its own",
            f"write {operator}(…, h=…), or give it an .alias('h').",
        )
    if item.name in node.schema and item.source_column != item.name:
        raise PlanError(f"{operator}: the key {item.name!r} is a column already", "choose another name.")
    check_key_type(operator, item.name, item.dtype)


def keys_first(node: Node, keys: Sequence[str], operator: str) -> Node:
    """Return the node with the key columns first; they must all still be there."""
    for key in keys:
        if key not in node.schema:
            raise ColumnNotFoundError(operator, key, node.schema)
    if node.schema.names[: len(keys)] == tuple(keys):
        return node
    ordered = [*keys, *(name for name in node.schema if name not in keys)]
    return project(node, [column(name, node.schema[name]) for name in ordered], (), operator)


def distinct(node: Node) -> Node:
    refuse_objects("distinct", node)
    return Distinct(parent=node)


def union(nodes: Sequence[Node]) -> Node:
    first = nodes[0]
    aligned = [first]
    for other in nodes[1:]:
        missing = set(first.schema) ^ set(other.schema)
        differing = [name for name in first.schema if name in other.schema and other.schema[name] != first.schema[name]]
        if missing or differing:
            raise PlanError(
                f"union: the inputs have different columns: ({first.schema!r}) and ({other.schema!r})",
                "select the same columns with the same types on every side.",
            )
        if other.codecs != first.codecs:
            raise PlanError(
                f"union: the columns {', '.join({**first.codecs, **other.codecs})} have different codecs",
                "use one sq.codec(…) on every side.",
            )
        same_order = other.schema.names == first.schema.names
        columns = [column(name, dtype) for name, dtype in first.schema.items()]
        aligned.append(other if same_order else project(other, columns, (), "union"))
    check_same_time("union", aligned)
    return first if len(aligned) == 1 else Union(parents=tuple(aligned))
