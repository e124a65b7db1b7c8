"""Build nodes with a left and a right input: keys resolved, types checked, output columns named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from squill.arguments import is_one_of
from squill.errors import PlanError
from squill.plan.build.checks import check_key_type, check_same_time, refuse_object_order, refuse_objects
from squill.plan.expressions import END, START, Expression, Scope, bind, bind_predicate
from squill.plan.matching import Matching
from squill.plan.node import Node
from squill.plan.nodes import AsofJoin, ClipByStream, Exists, Join
from squill.plan.schema import Schema
from squill.time import Duration
from squill.wording import shortened

__all__ = ["On", "asof_join", "clip", "exists", "join"]

SUFFIX = "_right"
HOWS = ("inner", "left", "right", "full", "cross")


@dataclass(frozen=True)
class On:
    """The key columns as the user gave them, and the keys of the group around the operator."""

    on: object = None
    left_on: object = None
    right_on: object = None
    keys: tuple[str, ...] = ()


def join(left: Node, right: Node, on: On, where: object, how: str) -> Node:
    if not is_one_of(how, HOWS):
        raise PlanError(f"join: how is {shortened(how)}", "use " + ", ".join(map(repr, HOWS)) + ".")
    if how == "cross" and any(item is not None for item in (on.on, on.left_on, on.right_on)):
        raise PlanError("join: how='cross' pairs everything and takes no key columns", "leave on= out, or use 'inner'.")
    matching = _matching(left, right, on, where, "join", needs_keys=how != "cross")
    return _checked(Join(left=left, right=right, matching=matching, how=how), "join")


def exists(left: Node, right: Node, on: On, where: object, *, negated: bool) -> Node:
    operator = "where_not_exists" if negated else "where_exists"
    matching = _matching(left, right, on, where, operator, needs_keys=True, shows_right=False)
    return Exists(left=left, right=right, matching=matching, negated=negated)


def asof_join(left: Node, right: Node, on: On, tolerance: Duration | None, order_by: object, how: str) -> Node:
    if not is_one_of(how, ("left", "inner")):
        raise PlanError(f"asof_join: how is {shortened(how)}", "use 'left' or 'inner'.")
    _require_time(left, right, "asof_join")
    matching = _matching(left, right, on, None, "asof_join", needs_keys=False)
    assert left.time is not None
    ticks = None if tolerance is None else left.time.ticks(tolerance, "asof_join: tolerance")
    if ticks is not None and ticks < 0:
        raise PlanError(
            f"asof_join: the tolerance {shortened(tolerance)} is negative", "give 0 or more, or leave it out."
        )
    order = bind(_listed(order_by), {}, right.scope, "asof_join order_by")
    refuse_object_order("asof_join order_by", right.codecs, order)
    node = AsofJoin(left=left, right=right, matching=matching, tolerance=ticks, order_by=order, how=how)
    return _checked(node, "asof_join")


def clip(left: Node, right: Node, on: On) -> Node:
    _require_time(left, right, "clip")
    return ClipByStream(
        left=left, right=right, matching=_matching(left, right, on, None, "clip", needs_keys=False, shows_right=False)
    )


def _require_time(left: Node, right: Node, operator: str) -> None:
    for side, node in (("left", left), ("right", right)):
        if node.time is None:
            raise PlanError(
                f"{operator}: the {side} input is relational: it has no starts to compare",
                "give it a time: sq.from_frame(frame, start='ts').",
            )


def _checked(node: Join | AsofJoin, operator: str) -> Node:
    if node.time is not None:
        node.schema.without_time_names(operator)
    return node


def _matching(
    left: Node, right: Node, on: On, where: object, operator: str, *, needs_keys: bool, shows_right: bool = True
) -> Matching:
    """Return how rows match; the right input's columns get names where the answer or a condition shows them."""
    check_same_time(operator, (left, right))
    if left.time is not None and right.time is not None:
        refuse_objects(operator, left, right)
    left_on, right_on = _key_columns(left, right, on, operator)
    if needs_keys and not left_on and not on.keys:
        others = "; how='cross' pairs everything" if operator == "join" else ""
        raise PlanError(f"{operator}: no key columns are given", f"name them with on='k'{others}.")
    _check_key_types(left, right, left_on, right_on, operator)
    # With on= both sides call a key alike, and one column is enough.
    shared = {*on.keys, *(right_on if on.left_on is None else ())}
    shown = [name for name in right.schema if name not in shared] if shows_right or where is not None else []
    right_as = _right_names(left.schema, shown, operator)
    condition = None
    if where is not None:
        pair = Schema({**left.schema, **{name: right.schema[source] for name, source in right_as}})
        condition = _condition(where, pair, operator)
    return Matching(keys=on.keys, left_on=left_on, right_on=right_on, where=condition, right_as=right_as)


def _key_columns(left: Node, right: Node, on: On, operator: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if on.on is not None and (on.left_on is not None or on.right_on is not None):
        raise PlanError(f"{operator}: both on= and left_on=/right_on= are given", "use one way to name the keys.")
    if (on.left_on is None) != (on.right_on is None):
        raise PlanError(f"{operator}: left_on= and right_on= go together", "give both, or on= for equal names.")
    names = (on.on, on.on) if on.left_on is None else (on.left_on, on.right_on)
    left_on = _names(names[0], left, f"{operator} (left input)")
    right_on = _names(names[1], right, f"{operator} (right input)")
    if len(left_on) != len(right_on):
        raise PlanError(f"{operator}: {len(left_on)} left keys against {len(right_on)} right ones", "pair them up.")
    return left_on, right_on


def _listed(given: object) -> list[object]:
    return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]


def _names(given: object, node: Node, operator: str) -> tuple[str, ...]:
    bound = bind(_listed(given), {}, node.scope, operator)
    for item in bound:
        if item.source_column != item.name:
            raise PlanError(f"{operator}: the key {item} is not a plain column", "compute it with with_columns before.")
    return tuple(item.name for item in bound)


def _check_key_types(left: Node, right: Node, left_on: Sequence[str], right_on: Sequence[str], operator: str) -> None:
    for left_name, right_name in zip(left_on, right_on, strict=True):
        left_type, right_type = left.schema[left_name], right.schema[right_name]
        if left_type != right_type:
            raise PlanError(
                f"{operator}: the keys have different types: {left_name!r} is {left_type} on the left, "
                f"{right_name!r} is {right_type} on the right",
                "cast one of them with with_columns before.",
            )
        check_key_type(operator, left_name, left_type)
        if left.codecs.get(left_name) != right.codecs.get(right_name):
            raise PlanError(
                f"{operator}: the keys {left_name!r} on the left and {right_name!r} on the right have different codecs",
                "use one sq.codec(…) on both sides, so that equal objects have equal bytes.",
            )


def _right_names(left: Schema, right: Sequence[str], operator: str) -> tuple[tuple[str, str], ...]:
    """Return (name in the pair, name in the right input); a name that the left has too gets a suffix."""
    named = [(name + SUFFIX if name in left else name, name) for name in right]
    for name, source in named:
        if (name in left) or [other for other, _ in named].count(name) > 1:
            raise PlanError(
                f"{operator}: two columns would be called {name!r}; the right input's {source!r} is one of them",
                "rename one before.",
            )
    return tuple(named)


def _condition(where: object, pair: Schema, operator: str) -> Expression:
    if isinstance(where, pl.Expr) and {START, END} & set(where.meta.root_names()):
        raise PlanError(
            f"{operator}: where= sees the columns of a pair, not its times",
            "keep a time as a column: with_columns(t=sq.start()).",
        )
    return bind_predicate(where, Scope(pair, None, ends_known=False), f"{operator} where")
