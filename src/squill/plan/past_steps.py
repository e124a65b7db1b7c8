"""Let operators forget the rows of past steps, where no row of a later step can meet them.

Rows of equal hashed columns share a step. An operator whose keys contain these columns (`plan/apart.py`) has seen all
rows of a key once the step is over, so that nothing of them is needed after it (Chandramouli, Goldstein, Quamar:
Scalable Progressive Analytics on Big Data in the Cloud, section 2.6). Their rows are therefore alive at their own step
only, as long as they pass such operators, and stay for good behind the last of these:

::

    aggregate(keys=[], top=top_k(...))
      with_duration(None)                  rows stay from here on
        aggregate(keys=[order], ...)       holds the keys of one step
          join(on=[order])                 and the rows of one step
            progress_source(...)           rows are alive at one step

Rows that every step has, those of a dimension, are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from squill.plan.apart import Deciding, MeetError, deciding, deciding_after
from squill.plan.assignment import AtStart
from squill.plan.node import Node, walk
from squill.plan.nodes import (
    Aggregate,
    Distinct,
    Exists,
    Join,
    MapBatches,
    Select,
    SelectMany,
    Union,
    Where,
    WithDuration,
)
from squill.plan.nodes.movement import Move, Split
from squill.plan.nodes.progress import ProgressSource
from squill.plan.rebuild import rebuild, with_inputs

__all__ = ["forget_past_steps", "join_by_step"]

FORGETTING = (Aggregate, Distinct, Exists, Join)
"""What keeps rows or keys, and has no use for those of past steps where they are apart."""
PASSING = (MapBatches, Move, Select, SelectMany, Split, Union, Where)

MIXED: Final = "mixed"
"""Of rows of which nothing is known: those of different steps may meet."""
Confined = Deciding | None | str
"""What decides the step of rows, None of rows that every step has, or `MIXED`."""


def forget_past_steps(root: Node) -> Node:
    """Return the plan, over sources with progress, in which operators forget past steps where they may."""
    confined = _confined_nodes(root, only_brief=False)
    brief = _brief(list(walk(root)), confined)
    if not brief:
        return root

    def change(node: Node, original: Node) -> Node:
        if isinstance(node, ProgressSource):
            return replace(node, brief=id(original) in brief)
        if id(original) in brief or not any(id(item) in brief for item in original.inputs):
            return node
        return _on_lasting_rows(node, original, brief)

    changed = rebuild(root, change)
    return _lasting(changed) if id(root) in brief else changed


def join_by_step(root: Node) -> Node:
    """Return the plan in which joins of rows that are alive at one step look at the rows of one step at a time."""
    confined = _confined_nodes(root, only_brief=True)

    def change(node: Node, original: Node) -> Node:
        if (
            not isinstance(node, Join)
            or not isinstance(original, Join)
            or not isinstance(confined[id(original)], Mapping)
        ):
            return node
        whole = [side for side in ("left", "right") if confined[id(getattr(original, side))] is None]
        return replace(node, by_step=whole[0] if whole else "none")

    return rebuild(root, change)


def _confined_nodes(root: Node, *, only_brief: bool) -> dict[int, Confined]:
    confined: dict[int, Confined] = {}
    for node in walk(root):
        found = _confined(node, [confined[id(item)] for item in node.inputs])
        lasts = only_brief and isinstance(node, ProgressSource) and not node.brief and found is not None
        confined[id(node)] = MIXED if lasts else found
    return confined


def _confined(node: Node, inputs: list[Confined]) -> Confined:
    if isinstance(node, ProgressSource):
        return None if isinstance(node.assignment, AtStart) else deciding(node.assignment, node.schema) or MIXED
    if not inputs or not isinstance(node, (*FORGETTING, *PASSING)):
        return MIXED
    known = [item for item in inputs if not isinstance(item, str)]
    if len(known) < len(inputs):
        return MIXED
    try:
        return deciding_after(node, known)
    except MeetError:
        return MIXED


def _brief(nodes: list[Node], confined: dict[int, Confined]) -> set[int]:
    """Return the nodes whose rows are to be alive at one step: those that forget, and what leads to them."""
    brief: set[int] = set()
    for node in reversed(nodes):
        if not isinstance(confined[id(node)], Mapping):
            continue
        if isinstance(node, FORGETTING):
            brief.add(id(node))
        if id(node) in brief:
            brief.update(id(item) for item in node.inputs if isinstance(confined[id(item)], Mapping))
    return brief


def _on_lasting_rows(node: Node, original: Node, brief: set[int]) -> Node:
    """Return a node that looks at rows of different steps with inputs whose rows stay."""
    stay = {id(new): _lasting(new) for new, old in zip(node.inputs, original.inputs, strict=True) if id(old) in brief}
    return with_inputs(node, lambda item: stay.get(id(item), item))


def _lasting(node: Node) -> Node:
    return WithDuration(parent=node, duration=None)
