"""Let files and frames be read, and rows be moved, without those that a filter would drop."""

from __future__ import annotations

from dataclasses import replace
from operator import and_

from squill.plan.expressions import END, START, Expression, combined
from squill.plan.node import Node
from squill.plan.nodes import FileSource, FrameSource, Select, Union, Where
from squill.plan.nodes.live import LiveSource
from squill.plan.nodes.movement import Move, Split
from squill.plan.rebuild import consumer_counts, rebuild
from squill.plan.routing import BroadcastRouting, HashRouting

__all__ = ["push_filter_down"]

PLACE_EACH_ROW_BY_ITSELF = (BroadcastRouting, HashRouting)
"""Movements that send a row where it goes whatever other rows there are. Round robin counts them. Of multicast the user
asks which shards a row goes to, and may be told that there is no such shard, for every row."""


def push_filter_down(root: Node) -> Node:
    """Move a filter that stands on scans into them, through unions and columns that a select hands on.

    ::

        where(predicate=x > 1)            union
          union                      →      file_source(…, only x > 1)
            file_source(…)                  frame_source(…, only x > 1)
            frame_source(…)                 where(predicate=x > 1)
            push_source(…)                    push_source(…)

    On a movement it stands before it: rows that it drops are not sent.

    ::

        where(predicate=x > 1)            redistribute(by k)
          redistribute(by k)         →      file_source(…, only x > 1)
            file_source(…)

    A frame then has the order of its times checked, and its rows sorted, only where they are kept. A frame's rows
    are all looked at, so columns between that may fail on a row keep the filter above them.
    """
    consumers = consumer_counts(root)
    # Of the nodes that were made; those that are not listed were made for one consumer.
    shared: set[int] = set()

    def absorbed(predicate: Expression, node: Node, *, passed_failing: bool = False) -> Node | None:
        """Return the node without the rows that the predicate drops, or None when nothing below takes it.

        `passed_failing`: on the way down it passed columns that may fail.
        """
        if id(node) in shared:
            return None  # others need the rows, and a scan would be read twice
        match node:
            case LiveSource():
                return None  # time comes for rows that the filter drops, too, and they may be late
            case FileSource():
                return _read_less(node, predicate)
            case FrameSource() if _has_times_to_check(node) and not passed_failing:
                return _read_less(node, predicate)
            case Select() if _hands_on(node, predicate):
                failing = passed_failing or any(item.can_fail(node.parent.schema) for item in node.columns)
                below = absorbed(predicate, node.parent, passed_failing=failing)
                return None if below is None else replace(node, parent=below)
            case Split():
                below = absorbed(predicate, node.parent, passed_failing=passed_failing)
                return None if below is None else replace(node, parent=below)
            case Move() if isinstance(node.routing, PLACE_EACH_ROW_BY_ITSELF) and not passed_failing:
                below = absorbed(predicate, node.parent)
                return replace(node, parent=Where(parent=node.parent, predicate=predicate) if below is None else below)
            case Union():
                pieces = [absorbed(predicate, parent, passed_failing=passed_failing) for parent in node.parents]
                if all(piece is None for piece in pieces):
                    return None
                filtered = (
                    Where(parent=parent, predicate=predicate) if piece is None else piece
                    for parent, piece in zip(node.parents, pieces, strict=True)
                )
                return replace(node, parents=tuple(filtered))
        return None

    def change(node: Node, original: Node) -> Node:
        changed = absorbed(node.predicate, node.parent) if isinstance(node, Where) else None
        result = node if changed is None else changed
        if consumers.get(id(original), 0) > 1:
            shared.add(id(result))
        return result

    return rebuild(root, change)


def _hands_on(select: Select, predicate: Expression) -> bool:
    """Whether everything that the predicate looks at is below the select what it is above."""
    same = {item.name for item in select.columns if item.source_column == item.name}
    return same.issuperset(predicate.roots)


def _has_times_to_check(source: FrameSource) -> bool:
    """True but for relational rows, and for intervals: rows of an empty lifetime go before a filter sees them."""
    return source.lifetime is not None and source.lifetime.end is None


def _read_less(source: FileSource | FrameSource, predicate: Expression) -> Node | None:
    if START in predicate.roots or END in predicate.roots:
        return None  # the times are made after reading
    if source.predicate is None:
        return replace(source, predicate=predicate)
    # Together both see every row, and a cast that fails must not meet rows that the first filter drops.
    if predicate.can_fail(source.columns):
        return None
    return replace(source, predicate=combined((source.predicate, predicate), and_))
