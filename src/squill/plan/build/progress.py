"""Build progressive plans: the same plan over sources whose rows come in the order of progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from squill.errors import PlanError, UnsupportedOperatorError
from squill.plan.assignment import Assignment, Hashed, whole
from squill.plan.build.checks import NO_KEY_TYPES
from squill.plan.build.together import check_promises_agree
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource, Source
from squill.plan.nodes.movement import Move, Split
from squill.plan.nodes.progress import ProgressSource
from squill.plan.nodes.tables import TableSource
from squill.plan.placement import placement_of
from squill.plan.rebuild import rebuild
from squill.plan.routing import HashRouting, RoundRobinRouting
from squill.wording import articled, near_names, shortened

__all__ = ["ProgressInput", "check_coarsen", "inputs_of", "over_progress", "placed_again"]

WAYS = "sq.progress.rows(k), fractions(n), hashed(columns, steps), stratified(key, k), columns(…) or at_start()"


class ProgressInput:
    """One input of a progressive query: its name, its source, and when its rows take part."""

    def __init__(self, name: str, source: Source, assignment: Assignment) -> None:
        self.name = name
        self.source = source
        self.assignment = assignment

    @property
    def in_order(self) -> bool:
        """Whether the rows are stored in just this order."""
        return _stored_order(self.source) == self.assignment.order

    def over_progress(self, source: Source, coarsen: int, tally: Any = None) -> ProgressSource:
        """Return rows of the input, which `source` reads, with progress in the place of time."""
        return ProgressSource(
            label=self.name,
            columns=source.columns,
            lifetime=None,
            source=source,
            assignment=self.assignment,
            coarsen=coarsen,
            tally=tally,
            in_order=self.in_order,
        )


def _stored_order(source: Source) -> Assignment | None:
    return source.stored.progress if isinstance(source, FileSource) and source.stored is not None else None


def check_coarsen(coarsen: object) -> int:
    if coarsen is None:
        return 1
    return whole(coarsen, 1, "progressive: coarsen", ": progress points become multiples of it")


def inputs_of(root: Node, given: Any) -> list[ProgressInput]:
    """Return the plan's inputs, in plan order, with the assignment of each; refuse what does not fit."""
    sources = [node for node in walk(root) if isinstance(node, Source)]
    for source in sources:
        _check_stored(source)
    named = _named(sources)
    chosen = dict(_chosen(named, given))
    for name, source in named.items():
        chosen[name].check(source.columns, f"progressive: {chosen[name]} of the input {name!r}")
    _check_hashes_agree(named, chosen)
    check_promises_agree(named, chosen)
    return [ProgressInput(name, source, chosen[name]) for name, source in named.items()]


def _check_stored(source: Source) -> None:
    if not isinstance(source, (FrameSource, FileSource)):
        raise UnsupportedOperatorError(
            f"progressive: the input {source.label!r} is {articled(source.name.replace('_', ' '))}, which has no rows "
            "to take in another order",
            "give frames or files: sq.from_frame(…), sq.scan(…).",
        )
    if isinstance(source, TableSource):
        raise UnsupportedOperatorError(
            f"progressive: the input {source.label!r} is a Spark DataFrame, whose rows are in no fixed order",
            "store them first, .to_storage(path, progress=…) or .to_memory(name), and ask the dataset.",
        )


def _named(sources: list[Source]) -> dict[str, Source]:
    """Return the sources by name; of several of one name the second has the number 2 behind it."""
    named: dict[str, Source] = {}
    for source in sources:
        name, number = source.label, 1
        while name in named:
            number += 1
            name = f"{source.label} {number}"
        named[name] = source
    return named


def _chosen(named: Mapping[str, Source], given: Any) -> Iterator[tuple[str, Assignment]]:
    if isinstance(given, Assignment):
        yield from ((name, given) for name in named)
        return
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise PlanError(
            f"progressive: {shortened(given)} is no assignment", f"give {WAYS}, or a dict of these by input name."
        )
    inputs = ", ".join(named)
    for name, assignment in given.items():
        if name not in named:
            near = near_names(str(name), named)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "inputs are named by name=."
            raise PlanError(f"progressive: there is no input {name!r}; the inputs are: {inputs}", hint)
        if not isinstance(assignment, Assignment):
            raise PlanError(
                f"progressive: {name!r} has {shortened(assignment)}, which is no assignment", f"give {WAYS}."
            )
    for name, source in named.items():
        assignment = given.get(name, _stored_order(source))
        if assignment is None:
            raise PlanError(
                f"progressive: the input {name!r} has no assignment; the inputs are: {inputs}",
                "name every input that is not stored in the order of progress; "
                "sq.progress.at_start() lets all rows of a table be there at once.",
            )
        yield name, assignment


def _check_hashes_agree(named: Mapping[str, Source], chosen: Mapping[str, Assignment]) -> None:
    """Inputs that are hashed must be hashed alike, or equal values would come at different steps."""
    first: tuple[str, Hashed, list[str]] | None = None
    for name, assignment in chosen.items():
        if not isinstance(assignment, Hashed):
            continue
        kinds = [_kind(named[name].columns[column]) for column in assignment.names]
        if first is None:
            first = name, assignment, kinds
        elif (assignment.steps, kinds) != (first[1].steps, first[2]):
            raise PlanError(
                f"progressive: {first[0]!r} has {first[1]} over {', '.join(first[2])}, but {name!r} has {assignment} "
                f"over {', '.join(kinds)}: equal values would come at different steps",
                "hash as many columns of the same types, in the same order, into as many steps.",
            )


def _kind(dtype: pl.DataType) -> str:
    """Return what of a type decides its hash."""
    if dtype.is_integer():
        return "integers"
    if dtype.is_float():
        return "floats"
    return "text" if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)) else str(dtype)


def over_progress(root: Node, inputs: list[ProgressInput], coarsen: int) -> Node:
    """Return the plan over the same sources with progress in the place of time; `root` has been rewritten.

    A movement that spreads rows in turn would send the end of a row elsewhere than its start once rows have ends, so
    it goes by the hash of the whole row then.
    """
    replaced: dict[int, Node] = {id(item.source): item.over_progress(item.source, coarsen) for item in inputs}

    def change(node: Node, original: Node) -> Node:
        if isinstance(node, Move) and isinstance(node.routing, RoundRobinRouting) and not node.properties.ends_known:
            routing = node.routing
            keys = tuple(name for name, dtype in node.schema.items() if not isinstance(dtype, NO_KEY_TYPES))
            return Move(
                parent=node.parent,
                routing=HashRouting(keys=keys, layout=routing.layout, scope=routing.scope, channel=routing.channel),
            )
        return replaced.get(id(original), node)

    return rebuild(placed_again(root, inputs), change)


def placed_again(root: Node, inputs: list[ProgressInput]) -> Node:
    """Return the plan with the rows of datasets moved to where they were stored: they will be read otherwise.

    Those that are stored in the order of progress are read where they are.
    """
    stay = {id(item.source) for item in inputs if item.in_order}

    def change(node: Node, _original: Node) -> Node:
        placed = placement_of(node) if isinstance(node, Split) and id(node.parent) not in stay else None
        if placed is None or placed.keys is None:
            return node
        return Move(parent=node, routing=HashRouting(keys=placed.keys, layout=placed.layout))

    return rebuild(root, change)
