"""Whether a temporal plan may run on the rows of each step of a hash alone.

Rows of equal hashed columns share a step. If no operator ever looks at rows that differ in them, the answer over all
rows is the union of the answers over those of each step, whatever else the operator does with time. An input of which
all rows are there from the start, a dimension, may stand beside: every step sees all of it.

What decides the step may also be a promise (`sq.progress.columns(..., together=...)`): each of the two is a function of
some columns, the same in all inputs that have it. An operator may go by either, and behind it the other still holds, as
pairs and groups have one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from squill.errors import UnsupportedOperatorError
from squill.plan.assignment import Assignment, Hashed, Promising
from squill.plan.copies import LEFT, RIGHT, sides_that_may_be_copied
from squill.plan.node import Node, UnaryNode, walk
from squill.plan.nodes import (
    Aggregate,
    ClipByStream,
    ConsecutivePairs,
    CountWindow,
    Detect,
    Distinct,
    Exists,
    Join,
    MapBatches,
    PerWindow,
    Select,
    SelectMany,
    Sessionize,
    SessionWindow,
    SnapshotApply,
    Source,
    Stitch,
    TwoInputs,
    Union,
    UserOperator,
)
from squill.plan.schema import Schema

__all__ = [
    "Carried", "Deciding", "MeetError", "after", "behind", "carried_columns", "check_apart", "deciding",
    "deciding_after",
]  # fmt: skip

Names = frozenset[str]
Carried = tuple[Names, ...]
"""By hashed column, the columns of a node that have its value in every row."""
Deciding = Mapping[str, Carried]
"""By what decides the step, a hash or a promise, which columns carry those that it goes by."""
Refuse = Callable[[Node, str], UnsupportedOperatorError]

KEYED = (Aggregate, ConsecutivePairs, CountWindow, Detect, PerWindow, SessionWindow, Sessionize, SnapshotApply,
         UserOperator)  # fmt: skip
"""Nodes that look at the rows of a key."""

NEW_ROWS = (Aggregate, ConsecutivePairs, Detect, MapBatches, Sessionize, SnapshotApply, UserOperator)
"""Nodes of whose input only the key columns are sure to be in their output."""


def check_apart(root: Node, assigned: Mapping[int, Assignment]) -> None:
    """Raise unless rows of different steps never meet; `assigned` says how those of each source come, by its id.

    A source that is not in it is there as a whole from the start.
    """
    found: dict[int, Deciding | None] = {}
    for node in walk(root):
        if isinstance(node, Source):
            given = assigned.get(id(node))
            found[id(node)] = None if given is None else deciding(given, node.schema)
            continue
        try:
            found[id(node)] = deciding_after(node, [found[id(parent)] for parent in node.inputs])
        except MeetError as error:
            raise _refused(node, str(error)) from None


def deciding(assignment: Assignment, schema: Schema) -> dict[str, Carried]:
    """Return what decides the steps of an input, and which of its columns carry it."""
    found: dict[str, tuple[str, ...]] = {}
    if isinstance(assignment, Hashed):
        found["hash"] = assignment.names
    if isinstance(assignment, Promising) and assignment.together:
        found["promise"] = assignment.together
    return {kind: tuple(frozenset([name]) & set(schema) for name in names) for kind, names in found.items()}


def deciding_after(node: Node, inputs: list[Deciding | None]) -> Deciding | None:
    """Return what decides the steps of rows behind the node; None where every step has all rows.

    Raise when rows of different steps meet in it, whichever of these one goes by.
    """
    sizes = {kind: len(names) for item in inputs if item is not None for kind, names in item.items()}
    if not sizes:
        return None
    by_kind: dict[str, list[Carried | None]] = {
        kind: [None if item is None else item.get(kind, (frozenset(),) * size) for item in inputs]
        for kind, size in sizes.items()
    }
    meet: dict[str, MeetError] = {}
    for kind, carried in by_kind.items():
        try:
            after(node, carried)
        except MeetError as error:
            meet[kind] = error
    if len(meet) == len(by_kind):
        raise next(iter(meet.values()))
    found = {
        kind: behind(node, _of_one_side(carried) if kind in meet else carried) for kind, carried in by_kind.items()
    }
    return {kind: carried for kind, carried in found.items() if carried is not None}


def _of_one_side(inputs: list[Carried | None]) -> list[Carried | None]:
    """Return what is known of one side of pairs that do not match by it: values of both must not be mixed."""
    if None in inputs or len(inputs) == 1:
        return inputs
    kept = next((place for place, item in enumerate(inputs) if all(item or ())), 0)
    return [item if place == kept else tuple(frozenset[str]() for _ in item or ()) for place, item in enumerate(inputs)]


def carried_columns(root: Node, hashed: Mapping[int, tuple[str, ...]], refuse: Refuse) -> Carried | None:
    """Return which columns carry the hashed ones, None where every step has all rows; raise where steps meet."""
    carried: dict[int, Carried | None] = {}
    for node in walk(root):
        if isinstance(node, Source):
            names = hashed.get(id(node))
            carried[id(node)] = None if names is None else tuple(frozenset([name]) & set(node.schema) for name in names)
        else:
            try:
                carried[id(node)] = after(node, [carried[id(parent)] for parent in node.inputs])
            except MeetError as error:
                raise refuse(node, str(error)) from None
    return carried[id(root)]


class MeetError(Exception):
    """A node looks at rows of different steps; the text says why."""


def after(node: Node, inputs: list[Carried | None]) -> Carried | None:
    """Return which columns carry the hashed ones behind the node; None where every step has all rows.

    Raise when rows of different steps meet in it.
    """
    _check_node(node, inputs)
    return behind(node, inputs)


def behind(node: Node, inputs: list[Carried | None]) -> Carried | None:
    """Return the same of a node in which rows of different steps are known not to meet."""
    if all(item is None for item in inputs):
        return None
    if isinstance(node, TwoInputs):
        return _shown(node, *inputs)
    if isinstance(node, Union):
        known = [item for item in inputs if item is not None]
        return tuple(frozenset.intersection(*names) for names in zip(*known, strict=True))
    (before,) = inputs
    assert before is not None
    assert isinstance(node, UnaryNode)
    return _kept(node, before)


def _check_node(node: Node, inputs: list[Carried | None]) -> None:
    if all(item is None for item in inputs):
        return
    if isinstance(node, TwoInputs):
        _check_pairs(node, *inputs)
    elif isinstance(node, Union):
        if None in inputs:
            raise MeetError("it unites them with rows that every step has")
    elif isinstance(node, KEYED):
        keys = frozenset(node.keys)
        if not all(names & keys for names in inputs[0] or ()):
            raise MeetError(f"its keys are {', '.join(node.keys) or 'none'}")
    elif isinstance(node, (Distinct, Stitch)) and not all(inputs[0] or ()):
        raise MeetError("it compares rows that no longer have them")


def _kept(node: UnaryNode, before: Carried) -> Carried:
    if isinstance(node, Select):
        return tuple(frozenset(item.name for item in node.columns if item.source_column in names) for names in before)
    if isinstance(node, NEW_ROWS):
        before = tuple(names & set(node.keys) for names in before)
    elif isinstance(node, SelectMany):
        before = tuple(names - {node.column} for names in before)
    return tuple(names & set(node.schema) for names in before)


def _check_pairs(node: TwoInputs, left: Carried | None, right: Carried | None) -> None:
    if left is None or right is None:
        if (LEFT if left is None else RIGHT) not in sides_that_may_be_copied(node):
            raise MeetError("it would find rows without a match in every step")
        return
    pairs = list(zip(node.matching.left_keys, node.matching.right_keys, strict=True))
    for one, other in zip(left, right, strict=True):
        if not any(a in one and b in other for a, b in pairs):
            raise MeetError(f"rows match by {node.matching}")


def _shown(node: TwoInputs, left: Carried | None, right: Carried | None) -> Carried:
    """Return the columns of pairs; one side's columns are null where it has no match, but for shared keys."""
    matching = node.matching
    renamed: dict[str, set[str]] = {}
    for name, source in matching.right_as:
        renamed.setdefault(source, set()).add(name)
    # A key with one column for both sides shows the one that is there.
    shared = {a: b for a, b in zip(matching.left_keys, matching.right_keys, strict=True) if b not in renamed}
    how = node.how if isinstance(node, Join) else "left"
    from_left = [names if how in ("inner", "cross", "left") else names & set(shared) for names in left or ()]
    from_right: list[Names] = []
    for names in right or ():
        own = (
            {name for source in names for name in renamed.get(source, ())} if how in ("inner", "cross", "right") else ()
        )
        keys = {a for a, b in shared.items() if b in names}
        from_right.append(frozenset({*own, *keys}) if not isinstance(node, (Exists, ClipByStream)) else frozenset())
    sides = [side for side in (from_left, from_right) if side]
    return tuple(frozenset.union(*names) & set(node.schema) for names in zip(*sides, strict=True))


def _refused(node: Node, why: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"progressive: {node.name} looks at rows of different steps: {why}, which do not contain the hashed columns",
        "a query over time is progressive when every key contains the columns of sq.progress.hashed(…), or those of "
        "together=; hash fewer columns, or group by them.",
    )
