"""Let the shards of a cluster share the work of a plan that says nothing about shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from squill.errors import PlanError
from squill.plan.build.checks import NO_KEY_TYPES
from squill.plan.build.movement import moved
from squill.plan.copies import LEFT, RIGHT, sides_that_may_be_copied
from squill.plan.layout import Layout
from squill.plan.likely_rows import likely_rows
from squill.plan.node import Node, UnaryNode
from squill.plan.nodes import (
    Aggregate,
    AlterLifetime,
    AsofJoin,
    CastTime,
    Chop,
    ClipByStream,
    ClipDuration,
    ConsecutivePairs,
    CountWindow,
    Detect,
    Distinct,
    EventsSource,
    Exists,
    Extend,
    FileSource,
    FrameSource,
    HoppingWindow,
    Join,
    MapBatches,
    PerWindow,
    PointAtEnd,
    PushSource,
    Quantize,
    Select,
    SelectMany,
    Sessionize,
    SessionWindow,
    Shift,
    SnapshotApply,
    Source,
    Stitch,
    TwoInputs,
    Union,
    UserOperator,
    WaitForEnds,
    Where,
    WithDuration,
)
from squill.plan.nodes.movement import Move, Split
from squill.plan.nodes.progress import ProgressSource
from squill.plan.placement import Placement, layout_of, placement_of
from squill.plan.rebuild import rebuild, with_inputs
from squill.plan.rewrite.split_aggregate import split_aggregate
from squill.plan.routing import BroadcastRouting, HashRouting, Routing
from squill.time import ProgressType

__all__ = ["parallelise"]

Names = tuple[str, ...]
N = TypeVar("N", bound=UnaryNode)


def parallelise(root: Node, layout: Layout, one: Layout, *, sums_up_steps: bool = True) -> Node:
    """Return the plan with its sources split over `layout`, and its rows moved to where they are needed.

    ::

        aggregate(keys=[k], …)         aggregate(keys=[k], …)
          where(…)                →      redistribute(by k)
            file_source(…)                 where(…)
                                             split
                                               file_source(…)

    Rows stay where they are as long as each can be handled by itself. What looks at several rows of a key gets
    them together by a movement, unless they are placed so already; without a key they come together on the
    single shard of `one`, and so they do for any kind of node that is not listed in `RULES`.
    `sums_up_steps`: whether shards may hold groups over progress before rows have moved.
    """
    rule = _Parallelise(layout, one, sums_up_steps=sums_up_steps)

    def change(node: Node, _original: Node) -> Node:
        return rule.changed(node)

    return rebuild(root, change)


class _Parallelise:
    """The inputs of a node that is changed are sharded already, each on `layout` or on `one`."""

    def __init__(self, layout: Layout, one: Layout, *, sums_up_steps: bool) -> None:
        self.layout = layout
        self.one = one
        self._sums_up_steps = sums_up_steps
        # By input and way, so that rows that go the same way twice are sent once.
        self._moves: dict[tuple[int, Routing], Node] = {}

    def changed(self, node: Node) -> Node:
        rule = RULES.get(type(node), _on_one_shard)
        return rule(self, node)

    def sums_up(self, node: Aggregate) -> bool:
        """Whether the rows that a step adds on a shard are to be sent as what changes in their groups.

        Not where each step has groups of its own: these have few rows.
        """
        over_steps = isinstance(node.time, ProgressType) and node.parent.properties.endless
        return over_steps and self._sums_up_steps

    # -- where rows are -----------------------------------------------------------------------------------

    def is_on_one(self, node: Node) -> bool:
        return layout_of(node) == self.one

    def are_together(self, node: Node, keys: Names) -> bool:
        """Whether rows of equal keys are on one shard, and may stay there; without keys: whether all rows are."""
        if self.is_on_one(node):
            return self.layout == self.one or not keys or _is_summary(node)
        placed = self._placed_by(node)
        return placed is not None and set(placed) <= set(keys)

    def _placed_by(self, node: Node) -> Names | None:
        place = None if self.is_on_one(node) else placement_of(node)
        return None if place is None else place.keys

    # -- movements ----------------------------------------------------------------------------------------

    def move(self, node: Node, routing: Routing) -> Node:
        way = (id(node), routing)
        if way not in self._moves:
            self._moves[way] = moved(node, routing)
        return self._moves[way]

    def together(self, node: Node, keys: Names) -> Node:
        """Return the rows where those of equal keys are on one shard; without keys: where all are."""
        if self.are_together(node, keys):
            return node
        return self.by_hash(node, keys) if keys else self.gathered(node)

    def by_hash(self, node: Node, keys: Names) -> Node:
        """Return the rows exactly where the hash of the keys says."""
        if not self.is_on_one(node) and placement_of(node) == Placement.hashed(keys, self.layout):
            return node
        return self.move(node, HashRouting(keys=keys, layout=self.layout))

    def gathered(self, node: Node) -> Node:
        return node if self.is_on_one(node) else self.move(node, HashRouting(keys=(), layout=self.one))

    def alike(self, node: TwoInputs) -> TwoInputs:
        """Return the node with rows of equal keys on one shard, whichever side they come from.

        Keys of equal values hash alike whatever the columns are called. If a side is placed by some of its keys,
        the other one follows it.
        """
        left_keys, right_keys = node.matching.left_keys, node.matching.right_keys
        left_by, right_by = left_keys, right_keys
        if self.follows(node.left, left_keys):
            left_by = self._placed_by(node.left) or ()
            right_by = _in_other_names(left_by, left_keys, right_keys)
        elif self.follows(node.right, right_keys):
            right_by = self._placed_by(node.right) or ()
            left_by = _in_other_names(right_by, right_keys, left_keys)
        return replace(node, left=self.by_hash(node.left, left_by), right=self.by_hash(node.right, right_by))

    def follows(self, node: Node, keys: Names) -> bool:
        placed = self._placed_by(node)
        return bool(placed) and set(placed or ()) <= set(keys)

    def beside(self, node: TwoInputs) -> TwoInputs:
        """Return the node with one side copied to where the other one is; both on one shard if neither may be."""
        sides = {LEFT: node.left, RIGHT: node.right}
        spread = [side for side in sides if not self.is_on_one(sides[side])]
        choices = [side for side in sides_that_may_be_copied(node) if _other(side) in spread]
        if not choices:
            return replace(node, left=self.gathered(node.left), right=self.gathered(node.right))
        copied = min(choices, key=lambda side: likely_rows(sides[side]))
        copy = self.move(sides[copied], BroadcastRouting(layout=self.layout))
        return replace(node, left=copy) if copied == LEFT else replace(node, right=copy)


def _other(side: str) -> str:
    return LEFT if side == RIGHT else RIGHT


def _in_other_names(names: Names, own: Names, others: Names) -> Names:
    other_of = dict(zip(own, others, strict=True))
    return tuple(other_of[name] for name in names)


def _is_summary(node: Node) -> bool:
    """Whether the rows on the one shard come from an aggregate: they are few, and not worth moving again."""
    while not isinstance(node, (Move, Split)):
        if isinstance(node, Aggregate):
            return True
        node = node.inputs[0]
    return False


# -- one rule for each kind of node ---------------------------------------------------------------------------


def _split(rule: _Parallelise, node: Source) -> Node:
    return Split(parent=node, layout=rule.layout)


def _read_by_one(rule: _Parallelise, node: Source) -> Node:
    # Single events come in order of arrival, and what is late among them depends on all before.
    return Split(parent=node, layout=rule.one)


def _refuse_pushed(_rule: _Parallelise, node: Source) -> Node:
    raise PlanError(
        f"source {node.label!r} is pushed by the program: a cluster runs queries over stored inputs",
        "subscribe(fn) to the query in this process, or give the rows with sq.from_frame(…) or sq.scan(…).",
    )


def _where_it_is(_rule: _Parallelise, node: Node) -> Node:
    return node


def _by_keys(rule: _Parallelise, node: Any) -> Node:
    return _on(node, rule.together(node.parent, node.keys))


def _by_payload(rule: _Parallelise, node: UnaryNode) -> Node:
    return _on(node, rule.together(node.parent, _hashable(node)))


def _hashable(node: Node) -> Names:
    """Return columns by which equal rows meet: any would do, so all are taken that can be."""
    return tuple(name for name, dtype in node.schema.items() if not isinstance(dtype, NO_KEY_TYPES))


def _distinct(rule: _Parallelise, node: Distinct) -> Node:
    if node.is_relational and not rule.are_together(node.parent, _hashable(node)):
        node = replace(node, parent=node)  # what is equal on a shard is sent once
    return _by_payload(rule, node)


def _aggregate(rule: _Parallelise, node: Aggregate) -> Node:
    if rule.are_together(node.parent, node.keys):
        return node
    # A shard's answer changes with each of its rows, so it is worth sending only where it sums many of them up:
    # those of a relation, or those that a window has put on a grid.
    sums_up = node.is_relational or (not node.keys and node.properties.window is not None) or rule.sums_up(node)
    halves = split_aggregate(node) if sums_up else None
    if halves is None:
        return _by_keys(rule, node)
    adds_up = rule.sums_up(node) and all(call.kind == "count" and call.where is None for call in halves.partial.calls)
    partial = _step_by_step(halves.partial) if adds_up else halves.partial
    return halves.final(rule.together(partial, node.keys))


def _step_by_step(node: Aggregate) -> Node:
    """Return what each step adds to the counts: that stays, so that nothing that was sent is ever taken back.

    Sums of values would hold the rows of a step until it is over.
    """
    alone = replace(node, parent=WithDuration(parent=node.parent, duration=1))
    return WithDuration(parent=alone, duration=None)


def _union(rule: _Parallelise, node: Union) -> Node:
    if len({layout_of(parent) for parent in node.parents}) == 1:
        return node
    # Rows on the one shard go to the first of the many: ends follow their starts whatever they are.
    there = HashRouting(keys=(), layout=rule.layout)
    parents = (rule.move(parent, there) if rule.is_on_one(parent) else parent for parent in node.parents)
    return replace(node, parents=tuple(parents))


def _pairs(rule: _Parallelise, node: TwoInputs) -> Node:
    keys = node.matching.left_keys
    if all(rule.is_on_one(side) and rule.are_together(side, keys) for side in node.inputs):
        return node
    return rule.alike(node) if node.matching.is_keyed else rule.beside(node)


def _on_one_shard(rule: _Parallelise, node: Node) -> Node:
    return with_inputs(node, rule.gathered)


def _on(node: N, parent: Node) -> N:
    return node if parent is node.parent else replace(node, parent=parent)


Rule = Callable[[_Parallelise, Any], Node]

RULES: dict[type[Node], Rule] = {
    FileSource: _split,
    FrameSource: _split,
    ProgressSource: _split,
    EventsSource: _read_by_one,
    PushSource: _refuse_pushed,
    # Each row by itself, or its start and its end.
    AlterLifetime: _where_it_is,
    CastTime: _where_it_is,
    Chop: _where_it_is,
    ClipDuration: _where_it_is,
    Extend: _where_it_is,
    HoppingWindow: _where_it_is,
    MapBatches: _where_it_is,
    PointAtEnd: _where_it_is,
    Quantize: _where_it_is,
    Select: _where_it_is,
    SelectMany: _where_it_is,
    Shift: _where_it_is,
    WaitForEnds: _where_it_is,
    Where: _where_it_is,
    WithDuration: _where_it_is,
    # The rows of a key.
    ConsecutivePairs: _by_keys,
    CountWindow: _by_keys,
    Detect: _by_keys,
    PerWindow: _by_keys,
    SessionWindow: _by_keys,
    Sessionize: _by_keys,
    SnapshotApply: _by_keys,
    UserOperator: _by_keys,
    # Equal rows.
    Distinct: _distinct,
    Stitch: _by_payload,
    Aggregate: _aggregate,
    Union: _union,
    AsofJoin: _pairs,
    ClipByStream: _pairs,
    Exists: _pairs,
    Join: _pairs,
}
"""What each kind of node needs of where its rows are; any other kind gets all of them on one shard."""
