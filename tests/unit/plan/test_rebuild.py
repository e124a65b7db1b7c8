from __future__ import annotations

from dataclasses import replace

import squill as sq
from squill.plan.node import Node, walk
from squill.plan.nodes import FrameSource, Shift, Union, Where
from squill.plan.rebuild import consumer_counts, rebuild, substitute

SOURCE = sq.from_frame({"t": [1, 2], "x": [1, 2]}, start="t")
SHARED = SOURCE.where(sq.col("x") > 1)
PLAN = SHARED.shift(3).union(SHARED, SOURCE.shift(5)).plan


def test_nothing_changed_is_the_same_object() -> None:
    assert rebuild(PLAN, lambda node, _: node) is PLAN
    assert substitute(PLAN, lambda _: None) is PLAN


def test_a_node_used_twice_is_changed_once_and_stays_one() -> None:
    changed: list[Node] = []

    def wider(node: Node, original: Node) -> Node:
        if isinstance(node, Where):
            changed.append(original)
            return replace(node, parent=Shift(parent=node.parent, by=1))
        return node

    plan = rebuild(PLAN, wider)
    assert changed == [SHARED.plan]
    assert len([node for node in walk(plan) if isinstance(node, Where)]) == 1
    assert isinstance(plan, Union)
    assert plan.inputs[0].inputs[0] is plan.inputs[1]


def test_inputs_are_changed_before_their_consumers() -> None:
    seen: list[tuple[str, bool]] = []

    def note(node: Node, original: Node) -> Node:
        seen.append((node.name, node is original))
        return replace(node, label="other") if isinstance(node, FrameSource) else node

    rebuild(PLAN, note)
    assert seen[0] == ("frame_source", True)
    assert all(not same for _, same in seen[1:])
    assert seen[-1][0] == "union"


def test_only_what_stands_on_a_change_is_made_anew() -> None:
    plan = rebuild(PLAN, lambda node, _: replace(node, by=9) if isinstance(node, Shift) and node.by == 5 else node)
    assert plan.inputs[1] is SHARED.plan
    assert plan.inputs[0] is PLAN.inputs[0]
    assert plan.inputs[2] is not PLAN.inputs[2]


def test_substitute_asks_from_the_root_and_not_below_what_it_exchanged() -> None:
    asked: list[str] = []
    other = SOURCE.shift(100).plan

    def choose(node: Node) -> Node | None:
        asked.append(node.name)
        return other if isinstance(node, Where) else None

    plan = substitute(PLAN, choose)
    assert asked[0] == "union"
    assert asked.count("where") == 1
    assert plan.inputs[1] is other
    assert plan.inputs[0].inputs == (other,)
    assert substitute(PLAN, lambda node: other if node is PLAN else None) is other


def test_consumers_are_counted_by_use() -> None:
    counts = consumer_counts(SHARED.union(SHARED, SOURCE).plan)
    assert counts == {id(SHARED.plan): 2, id(SOURCE.plan): 2}
