"""What each operator over two inputs means, from folded rows to folded rows.

Every function looks at all pairs. None is incremental and none cares for cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squill.plan.node import Node
from squill.plan.nodes import AsofJoin, ClipByStream, Exists, Join, TwoInputs
from squill.testing.reference.rows import Row, identity, row_order, typed_frame

__all__ = ["TWO_INPUTS"]

Rows = list[Row]
Lifetimes = list[tuple[int, int]]


def join(node: Join, left: Rows, right: Rows) -> Rows:
    pairs = [(a, b) for a in left for b in right if _match(node, a, b) and _common(a, b)]
    answer = [Row(*_lifetime(a, b), _pair(node, a, b)) for a, b in pairs]
    if node.how in ("left", "full"):
        answer += [
            Row(start, end, _pair(node, a, None))
            for a in left
            for start, end in _uncovered(a, [b for b in right if _match(node, a, b)])
        ]
    if node.how in ("right", "full"):
        answer += [
            Row(start, end, _pair(node, None, b))
            for b in right
            for start, end in _uncovered(b, [a for a in left if _match(node, a, b)])
        ]
    return answer


def exists(node: Exists, left: Rows, right: Rows) -> Rows:
    parts = _uncovered if node.negated else _covered
    return [
        row.living(start, end)
        for row in left
        for start, end in parts(row, [other for other in right if _match(node, row, other)])
    ]


def asof_join(node: AsofJoin, left: Rows, right: Rows) -> Rows:
    answer = []
    for row in left:
        earlier = [other for other in right if _match(node, row, other) and other.start <= row.start]
        if node.tolerance is not None:
            earlier = [other for other in earlier if row.start - other.start <= node.tolerance]
        latest = max(earlier, key=lambda other: row_order(other, node.right, node.order_by), default=None)
        if latest is not None or node.how == "left":
            answer.append(Row(row.start, row.end, _pair(node, row, latest)))
    return answer


def clip_by_stream(node: ClipByStream, left: Rows, right: Rows) -> Rows:
    clipped = []
    for row in left:
        later = [other.start for other in right if _match(node, row, other) and other.start > row.start]
        clipped.append(row.living(row.start, min([row.end, *later])))
    return clipped


# -- which rows match ---------------------------------------------------------------------------------------


def _match(node: TwoInputs, left: Row, right: Row) -> bool:
    matching = node.matching
    if any(identity(left.payload[name]) != identity(right.payload[name]) for name in matching.keys):
        return False
    for left_name, right_name in zip(matching.left_on, matching.right_on, strict=True):
        a, b = left.payload[left_name], right.payload[right_name]
        if a is None or b is None or identity(a) != identity(b):
            return False
    if matching.where is None:
        return True
    pair = typed_frame([_pair(node, left, right)], node.pair_schema)
    return pair.select(matching.where.expr).to_series().to_list() == [True]


def _pair(node: TwoInputs, left: Row | None, right: Row | None) -> dict[str, Any]:
    """Return the pair's columns; a side that is not there is null, but for keys that both sides show in one column."""
    matching = node.matching
    columns = dict.fromkeys(node.left.schema) if left is None else dict(left.payload)
    shown = {source for _, source in matching.right_as}
    if left is None and right is not None:
        for left_name, right_name in zip(matching.left_keys, matching.right_keys, strict=True):
            if right_name not in shown:
                columns[left_name] = right.payload[right_name]
    for name, source in matching.right_as:
        columns[name] = None if right is None else right.payload[source]
    return columns


# -- lifetimes ----------------------------------------------------------------------------------------------


def _lifetime(a: Row, b: Row) -> tuple[int, int]:
    return max(a.start, b.start), min(a.end, b.end)


def _common(a: Row, b: Row) -> bool:
    start, end = _lifetime(a, b)
    return start < end


def _covered(row: Row, others: Rows) -> Lifetimes:
    """Return the maximal parts of the row's lifetime in which one of the others is alive."""
    parts: Lifetimes = []
    for start, end in sorted(_lifetime(row, other) for other in others if _common(row, other)):
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], end))
        else:
            parts.append((start, end))
    return parts


def _uncovered(row: Row, others: Rows) -> Lifetimes:
    """Return the maximal parts of the row's lifetime in which none of the others is alive."""
    parts: Lifetimes = []
    free_from = row.start
    for start, end in _covered(row, others):
        if free_from < start:
            parts.append((free_from, start))
        free_from = end
    if free_from < row.end:
        parts.append((free_from, row.end))
    return parts


TWO_INPUTS: dict[type[Node], Callable[..., Rows]] = {
    AsofJoin: asof_join,
    ClipByStream: clip_by_stream,
    Exists: exists,
    Join: join,
}
