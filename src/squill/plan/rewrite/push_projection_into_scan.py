"""Let files be read, rows be moved and joins be made without the columns that nothing in the plan looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from squill.plan.aggregates import BoundAggregate
from squill.plan.expressions import END, START, Expression, column
from squill.plan.node import Node, walk
from squill.plan.nodes import (
    Aggregate,
    AlterLifetime,
    CastTime,
    Chop,
    ClipByStream,
    ClipDuration,
    Detect,
    Exists,
    Extend,
    FileSource,
    HoppingWindow,
    Join,
    PerWindow,
    PointAtEnd,
    Quantize,
    Select,
    SelectMany,
    SessionWindow,
    Shift,
    TwoInputs,
    Union,
    WaitForEnds,
    Where,
    WithDuration,
)
from squill.plan.nodes.movement import Move, ShardInput, Split
from squill.plan.nodes.patterns import COLUMN, FunctionCall
from squill.plan.placement import placement_of
from squill.plan.rebuild import rebuild
from squill.plan.routing import MulticastRouting

__all__ = ["only", "push_projection_into_scan"]

Names = frozenset[str]
ORDERED = frozenset({"first", "last", "collect_list", "top_k", "user", "user_states", "user_merge"})
"""Aggregates that see the whole payload, if only to put simultaneous events in order."""


def push_projection_into_scan(root: Node) -> Node:
    """Read only the columns that the plan above a scan uses; selects and aggregates between lose what nobody uses.

    ::

        aggregate(n=sum(x))               aggregate(n=sum(x))
          file_source(…, 40 columns)  →     file_source(…, read=[x])

    What rows are moved with, and what joins keep of their inputs, is cut down in the same way.
    """
    if not any(isinstance(node, (FileSource, Move, *PAIRING)) for node in walk(root)):
        return root
    needed = _needed_columns(root)

    def change(node: Node, original: Node) -> Node:
        wanted = needed[id(original)]
        if isinstance(node, FileSource) and not wanted.issuperset(node.schema):
            return replace(node, read=tuple(name for name in node.schema if name in wanted))
        if isinstance(node, Select) and not wanted.issuperset(node.schema):
            return replace(node, columns=tuple(item for item in node.columns if item.name in wanted))
        if isinstance(node, Aggregate) and not wanted.issuperset(node.schema):
            columns = _computed(node, wanted)
            # Where intervals are asked for they have been computed before: what is left of them is exact.
            return replace(node, columns=columns, calls=_calls(node, columns), estimated=())
        if isinstance(node, Union) and node is not original:
            names = _ordered(original, wanted)
            return replace(node, parents=tuple(only(parent, names) for parent in node.parents))
        if isinstance(node, PAIRING):
            return _with_less(node, wanted)
        if isinstance(node, Move):
            names = _ordered(original, _move(node, wanted))
            return node if node.schema.names == names else replace(node, parent=only(node.parent, names))
        return node

    return rebuild(root, change)


def _needed_columns(root: Node) -> dict[int, Names]:
    """Return by node id which of its columns anybody uses; consumers come before what they consume."""
    needed: dict[int, Names] = {id(node): frozenset() for node in walk(root)}
    needed[id(root)] = frozenset(root.schema)
    for node in reversed(list(walk(root))):
        for item, used in zip(node.inputs, _required(node, needed[id(node)]), strict=True):
            needed[id(item)] |= used
    return needed


def _required(node: Node, wanted: Names) -> Sequence[Names]:
    """Return which columns of each of its inputs a node uses, given which of its own are used."""
    if isinstance(node, PAIRING):
        return _of_pairs(node, wanted)
    requires = REQUIRES.get(type(node))
    # A kind of node that is not listed may look at everything.
    return [frozenset(item.schema) if requires is None else requires(node, wanted) for item in node.inputs]


def _roots(*expressions: Expression | None) -> Names:
    names = {root for item in expressions if item is not None for root in item.roots}
    return frozenset(names - {START, END})


def _same(_node: Any, wanted: Names) -> Names:
    return wanted


def _where(node: Where, wanted: Names) -> Names:
    return wanted | _roots(node.predicate)


def _select(node: Select, wanted: Names) -> Names:
    return _roots(*(item for item in node.columns if item.name in wanted))


def _select_many(node: SelectMany, wanted: Names) -> Names:
    return wanted | {node.column}


def _with_duration(node: WithDuration, wanted: Names) -> Names:
    return wanted | _roots(node.duration if isinstance(node.duration, Expression) else None)


def _alter_lifetime(node: AlterLifetime, wanted: Names) -> Names:
    return wanted | _roots(node.start, node.duration if isinstance(node.duration, Expression) else None)


def _session_window(node: SessionWindow, wanted: Names) -> Names:
    return wanted | frozenset(node.keys)


def _per_window(node: PerWindow, wanted: Names) -> Names:
    return (wanted & frozenset(node.parent.schema)) | frozenset(node.keys)


def _aggregate(node: Aggregate, wanted: Names) -> Names:
    calls = _calls(node, _computed(node, wanted))
    if any(call.kind in ORDERED for call in calls):
        return frozenset(node.parent.schema)
    used = [_roots(*call.inputs, call.where, *call.order_by) for call in calls]
    return frozenset(node.keys).union(*used)


def _computed(node: Aggregate, wanted: Names) -> tuple[Expression, ...]:
    """Return the results that anybody uses, one at least: which rows there are does not depend on them."""
    return tuple(item for item in node.columns if item.name in wanted) or node.columns[:1]


def _calls(node: Aggregate, columns: tuple[Expression, ...]) -> tuple[BoundAggregate, ...]:
    used = _roots(*columns)
    return tuple(call for call in node.calls if call.placeholder in used)


def _move(node: Move, wanted: Names) -> Names:
    if isinstance(node.routing, MulticastRouting) and node.routing.function is not None:
        return frozenset(node.parent.schema)
    return wanted | (frozenset(node.routing.columns) - {START, END})


def _ordered(node: Node, wanted: Names) -> tuple[str, ...]:
    return tuple(name for name in node.schema if name in wanted)


def only(node: Node, names: tuple[str, ...]) -> Node:
    """Return the node with these columns alone: it may have needed others for itself, or for somebody else."""
    if node.schema.names == names:
        return node
    return Select(parent=node, columns=tuple(column(name, node.schema[name]) for name in names))


def _of_pairs(node: TwoInputs, wanted: Names) -> tuple[Names, Names]:
    """Return the keys of both inputs, what the condition looks at, and what of a pair anybody uses."""
    matching = node.matching
    used = wanted | _roots(matching.where)
    left = used.intersection(node.left.schema).union(matching.left_keys)
    right = frozenset(matching.right_keys).union(source for name, source in matching.right_as if name in used)
    return _one_at_least(node.left, left | _placing(node.left)), _one_at_least(node.right, right | _placing(node.right))


def _placing(node: Node) -> Names:
    """Return the columns that say on which shard a row is: without them a live query could not be divided further.

    Rows that have arrived on a shard have been cut down before.
    """
    if any(isinstance(item, ShardInput) for item in walk(node)):
        return frozenset(node.schema)
    placement = placement_of(node)
    spreads = () if placement is None else (placement.across, placement.inside)
    return frozenset(name for spread in spreads if isinstance(spread, tuple) for name in spread)


def _one_at_least(node: Node, names: Names) -> Names:
    """Without keys nothing of an input may be used but that its rows are there."""
    return names or frozenset(node.schema.names[:1])


def _with_less(node: TwoInputs, wanted: Names) -> TwoInputs:
    """Return the node with inputs that have no more columns than it uses, and pairs that show no others."""
    left, right = (
        only(item, _ordered(item, names)) for item, names in zip(node.inputs, _of_pairs(node, wanted), strict=True)
    )
    used = wanted | _roots(node.matching.where)
    shown = tuple(pair for pair in node.matching.right_as if pair[0] in used)
    if left is node.left and right is node.right and shown == node.matching.right_as:
        return node
    return replace(node, left=left, right=right, matching=replace(node.matching, right_as=shown))


def _detect(node: Detect, _wanted: Names) -> Names:
    # Where simultaneous events are put in order, their whole payload may decide.
    if node.order_by is not None or any(item.scope != "one" and item.updates for item in node.elements):
        return frozenset(node.parent.schema)
    used = set(node.keys)
    for element in node.elements:
        used |= _roots(element.condition)
        for call in (*element.tests, *(update for _, update in element.updates)):
            if isinstance(call, FunctionCall):
                used |= {name for kind, name in call.arguments if kind == COLUMN}
            else:
                used |= _roots(call)
    return frozenset(used)


PAIRING = (ClipByStream, Exists, Join)
"""Nodes of two inputs that look at what `_of_pairs` says. AS OF joins order simultaneous events by all columns."""

REQUIRES: dict[type[Node], Callable[[Any, Names], Names]] = {
    Aggregate: _aggregate,
    AlterLifetime: _alter_lifetime,
    CastTime: _same,
    Chop: _same,
    ClipDuration: _same,
    Detect: _detect,
    Extend: _same,
    HoppingWindow: _same,
    Move: _move,
    PerWindow: _per_window,
    PointAtEnd: _same,
    Quantize: _same,
    Select: _select,
    SelectMany: _select_many,
    SessionWindow: _session_window,
    Shift: _same,
    Split: _same,
    Union: _same,
    WaitForEnds: _same,
    Where: _where,
    WithDuration: _with_duration,
}
"""Which columns of its input a node uses, given which of its own are used.

`Distinct`, `Stitch` (equal payloads), `CountWindow` (the order of simultaneous events) and `MapBatches` (the user's
code) look at everything.
"""
