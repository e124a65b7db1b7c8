"""Let a join by step compute the columns of what it looks up for pairs, not for rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from squill.plan.expressions import END, START, Expression, column
from squill.plan.matching import Matching
from squill.plan.node import Node
from squill.plan.nodes import Join, Select
from squill.plan.rebuild import rebuild

__all__ = ["compute_after_step_join"]


def compute_after_step_join(root: Node) -> Node:
    """Move columns that are computed for a join by step behind it: rows that find no other need not have them.

    ::

        join([order = of], by step)             select(order, of, revenue=price * (1 - discount))
          orders                                  join([order = of], by step)
          select(of, revenue=…)            →        orders
            lines                                   select(of, price, discount)
                                                      lines

    Other joins keep rows, and would keep more columns of them. A computation that may fail stays where it is, and so
    does one that the join itself looks at. Where most rows find others, it costs to gather one column more.
    """

    def change(node: Node, _original: Node) -> Node:
        if not isinstance(node, Join) or node.by_step is None:
            return node
        left, right = (_late_of(node, side) for side in ("left", "right"))
        return node if not (left or right) else _computed_after(node, left, right)

    return rebuild(root, change)


@dataclass(frozen=True)
class _Late:
    """Columns of one input that are computed after the join.

    ``columns``  by their name in a pair.
    ``roots``    what they are computed from: by name in the input of the select, the name in a pair.
    """

    columns: dict[str, Expression]
    roots: dict[str, str]


def _late_of(join: Join, side: str) -> _Late | None:
    select = getattr(join, side)
    if not isinstance(select, Select):
        return None
    matching = join.matching
    keys = matching.left_keys if side == "left" else matching.right_keys
    shown = {name: name for name in select.schema} if side == "left" else {own: name for name, own in matching.right_as}
    condition = () if matching.where is None else matching.where.roots
    late = {
        shown[item.name]: item
        for item in select.columns
        if item.name in shown
        and item.name not in keys
        and shown[item.name] not in condition
        and _can_wait(item, select)
    }
    if not late:
        return None
    roots = dict.fromkeys(root for item in late.values() for root in item.roots)
    handed_on = {item.source_column: shown[item.name] for item in select.columns if item.name in shown}
    return _Late(late, {root: handed_on.get(root) or _hidden(side, root) for root in roots})


def _can_wait(item: Expression, select: Select) -> bool:
    """Say whether a column is computed, from columns alone, and raises on no row."""
    is_computed = item.source_column is None and bool(item.roots)
    is_plain = not {START, END, *select.parent.codecs}.intersection(item.roots)
    return is_computed and is_plain and not item.can_fail(select.parent.schema)


def _hidden(side: str, root: str) -> str:
    return f"__squill_{side}_{root}__"


def _computed_after(join: Join, left: _Late | None, right: _Late | None) -> Node:
    late = {
        name: (item, given.roots)
        for given in (left, right)
        if given is not None
        for name, item in given.columns.items()
    }
    below = replace(
        join,
        left=join.left if left is None else _without(join.left, left, "left"),
        right=join.right if right is None else _without(join.right, right, "right"),
        matching=join.matching if right is None else _matching(join.matching, right),
    )
    columns = [
        late[name][0].over(late[name][1]).renamed(name) if name in late else column(name, dtype)
        for name, dtype in join.schema.items()
    ]
    return Select(parent=below, columns=tuple(columns))


def _without(select: Node, late: _Late, side: str) -> Select:
    """Return what the join is to be given: the columns that do not wait, and what those that do are computed from."""
    assert isinstance(select, Select)
    waiting = {item.name for item in late.columns.values()}
    kept = [item for item in select.columns if item.name not in waiting]
    schema = select.parent.schema
    added = [
        column(root, schema[root]).renamed(name) for root, name in late.roots.items() if name == _hidden(side, root)
    ]
    return replace(select, columns=(*kept, *added))


def _matching(matching: Matching, right: _Late) -> Matching:
    kept = [(name, own) for name, own in matching.right_as if name not in right.columns]
    added = [(name, name) for root, name in right.roots.items() if name == _hidden("right", root)]
    return replace(matching, right_as=(*kept, *added))
