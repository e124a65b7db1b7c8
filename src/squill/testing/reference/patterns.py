"""Patterns and pairs, from their definitions.

A match in the making is what it has seen and what may still come: a list of patterns of which the rest of the
match must be the sequence. Taking an event turns that list into others (the partial derivatives of regular
expressions). Two ways of taking an event by the same element are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from squill.errors import UserFunctionError
from squill.plan.expressions import Expression
from squill.plan.node import Node
from squill.plan.nodes import ConsecutivePairs, Detect, Sessionize
from squill.plan.nodes.patterns import COLUMN, REGISTER, Element, FunctionCall, PairNode, PatternTree, right_name
from squill.testing.reference.rows import Row, evaluate, group_rows, lasting, row_order
from squill.time import INFINITY

__all__ = ["PATTERNS"]

Rows = list[Row]
Rest = tuple[PatternTree, ...]
Registers = dict[str, Any]


# -- what may come next -------------------------------------------------------------------------------------


def is_nullable(tree: PatternTree) -> bool:
    match tree.kind:
        case "element":
            return False
        case "seq":
            return all(map(is_nullable, tree.parts))
        case "alt":
            return any(map(is_nullable, tree.parts))
        case "plus":
            return all(map(is_nullable, tree.parts))
    return True


def is_complete(rest: Rest) -> bool:
    return all(map(is_nullable, rest))


def next_elements(rest: Rest) -> dict[int, Rest]:
    """Return the elements that may take the next event, each with what must follow then."""
    found: dict[int, Rest] = {}
    for number, tree in enumerate(rest):
        for element, inner in _first_elements(tree).items():
            found.setdefault(element, (*inner, *rest[number + 1 :]))
        if not is_nullable(tree):
            break
    return found


def _first_elements(tree: PatternTree) -> dict[int, Rest]:
    match tree.kind:
        case "element":
            return {tree.element: ()}
        case "alt":
            return {element: inner for part in tree.parts for element, inner in next_elements((part,)).items()}
        case "star" | "plus":
            again = PatternTree("star", tree.parts)
            return {element: (*inner, again) for element, inner in next_elements(tree.parts).items()}
    return next_elements(tree.parts)


# -- detect -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instance:
    first: int
    rest: Rest
    registers: Registers


def detect(node: Detect, rows: Rows) -> Rows:
    if node.within is not None:
        for row in rows:
            lasting(row.start, node.within, "detect")
    return [match for group in group_rows(rows, node.keys) for match in _matches(node, group)]


def _units(node: Detect, rows: Rows) -> Iterator[Rows]:
    """Yield what is read at once: one event in the order of `order_by`, or all events of an instant."""
    events = sorted(rows, key=lambda row: row_order(row, node.parent, node.order_by or ()))
    if node.order_by is not None:
        yield from ([row] for row in events)
    else:
        yield from (list(instant) for _, instant in groupby(events, key=lambda row: row.start))


def _matches(node: Detect, rows: Rows) -> Rows:
    keys = {name: rows[0].payload[name] for name in node.keys}
    initial = {register.name: register.initial for register in node.registers}
    active: list[Instance] = []
    matches = []
    for unit in _units(node, rows):
        t = unit[0].start
        young = [item for item in active if node.within is None or t < item.first + node.within]
        reached = [following for item in young for following in _taken(node, item, unit)]
        if node.overlap or not reached:
            reached += _taken(node, Instance(t, (node.tree,), initial), unit)
        for item in reached:
            if is_complete(item.rest):
                end = INFINITY if node.within is None else item.first + node.within
                matches.append(Row(t, end, {**keys, **item.registers}))
        active = [item for item in reached if next_elements(item.rest)]
    return matches


def _taken(node: Detect, instance: Instance, unit: Rows) -> list[Instance]:
    taken = []
    for number, rest in next_elements(instance.rest).items():
        element = node.elements[number]
        if _accepts(element, instance.registers, unit, node.parent):
            registers = instance.registers
            for row in unit:
                registers = _updated(element, registers, row, node.parent)
            taken.append(Instance(instance.first, rest, registers))
    return taken


def _accepts(element: Element, registers: Registers, unit: Rows, stream: Node) -> bool:
    met = [_meets(element, registers, row, stream) for row in unit]
    if element.scope == "one":
        return met == [True]
    return any(met) if element.scope == "any" else not any(met)


def _meets(element: Element, registers: Registers, row: Row, stream: Node) -> bool:
    if element.condition is not None and evaluate([element.condition], row, stream) != (True,):
        return False
    return all(_called(test, registers, row) for test in element.tests)


def _updated(element: Element, registers: Registers, row: Row, stream: Node) -> Registers:
    changed = dict(registers)
    for name, update in element.updates:
        if isinstance(update, Expression):
            (changed[name],) = evaluate([update], row, stream)
        elif None not in _values(update, registers, row):
            changed[name] = _called(update, registers, row)
    return changed


def _values(call: FunctionCall, registers: Registers, row: Row) -> list[Any]:
    sources = {REGISTER: registers, COLUMN: row.payload}
    return [sources[kind][name] if kind in sources else row.start for kind, name in call.arguments]


def _called(call: FunctionCall, registers: Registers, row: Row) -> Any:
    values = _values(call, registers, row)
    if None in values:
        return None
    try:
        return call.function(*values)
    except Exception as error:
        raise UserFunctionError(f"detect: {call} failed for {row}: {error}") from error


# -- pairs --------------------------------------------------------------------------------------------------


def consecutive_pairs(node: ConsecutivePairs, rows: Rows) -> Rows:
    found = []
    for group in _groups(node, rows, node.order_by):
        for left, right in pairwise(group):
            near = node.within is None or right.start - left.start < node.within
            if near and _is_true(node.first, left, node) and _is_true(node.second, right, node):
                found.append(_pair(node, left, right))
    return found


def sessionize(node: Sessionize, rows: Rows) -> Rows:
    found = []
    for group in _groups(node, rows, ()):
        ends = [row for row in group if _is_true(node.is_end, row, node)]
        for left in group:
            after = next((right for right in ends if right.start > left.start), None)
            if after is not None and _is_true(node.is_start, left, node):
                found.append(_pair(node, left, after))
    return found


def _groups(node: PairNode, rows: Rows, order_by: Sequence[Expression]) -> list[Rows]:
    for row in rows:
        lasting(row.start, 1, node.name)
    return [
        sorted(group, key=lambda row: row_order(row, node.parent, order_by)) for group in group_rows(rows, node.keys)
    ]


def _is_true(condition: Expression | None, row: Row, node: PairNode) -> bool:
    return condition is None or evaluate([condition], row, node.parent) == (True,)


def _pair(node: PairNode, left: Row, right: Row) -> Row:
    columns = {**left.payload, **{right_name(name): right.payload[name] for name in node.others}}
    return Row(right.start, right.start + 1, {name: columns[name] for name in node.schema})


PATTERNS: dict[type[Node], Callable[..., Rows]] = {
    ConsecutivePairs: consecutive_pairs,
    Detect: detect,
    Sessionize: sessionize,
}
