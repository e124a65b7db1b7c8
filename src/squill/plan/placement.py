"""Where rows live: which columns decide a row's shard.

Shards have two coordinates, their machine and their place in it, and a movement may settle either: rows may be
spread by the hash of a key, copied everywhere, or nothing may be known. A placement is known after a movement and
lasts as long as its columns do. Forgetting one is always allowed: it costs a movement, never an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from squill.errors import InternalError
from squill.plan.layout import Layout
from squill.plan.node import Node, UnaryNode, walk
from squill.plan.nodes import (
    Aggregate,
    ConsecutivePairs,
    Detect,
    FileSource,
    FrameSource,
    Join,
    MapBatches,
    Select,
    SelectMany,
    Sessionize,
    SnapshotApply,
    TwoInputs,
    Union,
    UserOperator,
)
from squill.plan.nodes.movement import Move, Split
from squill.plan.nodes.progress import ProgressSource
from squill.plan.routing import FLAT, GLOBAL, KEY_HASH_VERSION, LOCAL, BroadcastRouting, HashRouting, Routing

__all__ = ["COPY", "Placement", "Spread", "agree", "layout_of", "moved", "placement_after", "placement_of", "spreads"]

COPY = "copy"
"""Every shard along this coordinate has all the rows."""

Spread = tuple[str, ...] | str | None
"""How rows are spread along one coordinate: by the hash of these columns, as copies, or in a way not known."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """How rows are spread over machines (`across`) and over the shards of a machine (`inside`).

    Examples
    --------
    >>> print(Placement.hashed(("user", "ad"), Layout(shards=4)))
    hash(user, ad) v1 % 4
    """

    layout: Layout
    across: Spread = None
    inside: Spread = None

    @classmethod
    def hashed(cls, keys: tuple[str, ...], layout: Layout) -> Placement:
        """Return the placement of rows that a flat redistribute has moved."""
        return cls(layout=layout, across=keys, inside=keys)

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The columns of which no value lives on two shards; None when there are none."""
        spreads = {self.across, self.inside}
        if self.layout.cores == 1:
            spreads = {self.across}
        elif self.layout.machines == 1:
            spreads = {self.inside}
        (only, *others) = spreads
        return only if isinstance(only, tuple) and not others else None

    def __str__(self) -> str:
        if self.keys is not None:
            return f"hash({', '.join(self.keys)}) v{KEY_HASH_VERSION} % {self.layout.shards}"
        return f"machines: {_show(self.across)}; shards of a machine: {_show(self.inside)}"


def _show(spread: Spread) -> str:
    if spread is None:
        return "not known"
    return spread if isinstance(spread, str) else f"hash({', '.join(spread)})"


def layout_of(node: Node) -> Layout:
    """Return the shards that the node's rows live on; all its inputs live on the same ones."""
    while not isinstance(node, (Move, Split)):
        if not node.inputs:
            raise InternalError(f"{node.name} is not on any shard")
        node = node.inputs[0]
    return node.routing.layout if isinstance(node, Move) else node.layout


def agree(left: Placement | None, right: Placement | None, keys: tuple[str, ...], layout: Layout) -> bool:
    """Whether rows of equal keys, one of either input, always meet on a shard: once, unless both are copies."""
    return all(_meet(one, other, keys) for one, other in spreads(left, right, layout))


def spreads(left: Placement | None, right: Placement | None, layout: Layout) -> list[tuple[Spread, Spread]]:
    """Return how both are spread along each coordinate that there is more than one shard along."""
    sizes = (layout.machines, layout.cores)
    return [(_along(left, number), _along(right, number)) for number, size in enumerate(sizes) if size > 1]


def _along(placement: Placement | None, coordinate: int) -> Spread:
    return None if placement is None else (placement.across, placement.inside)[coordinate]


def _meet(left: Spread, right: Spread, keys: tuple[str, ...]) -> bool:
    # Spread by some of the keys, rows whose keys are all equal meet too.
    return COPY in (left, right) or (left is not None and left == right and set(left) <= set(keys))


def placement_of(root: Node) -> Placement | None:
    """Return where the node's rows live, or None when nothing is known of it."""
    found: dict[int, Placement | None] = {}
    for node in walk(root):
        found[id(node)] = placement_after(node, [found[id(parent)] for parent in node.inputs])
    return found[id(root)]


def placement_after(node: Node, inputs: list[Placement | None]) -> Placement | None:
    """Return where the node's rows live when those of its inputs live there."""
    if isinstance(node, Move):
        return moved(inputs[0], node.routing)
    if isinstance(node, Split):
        return _as_stored(node)
    if isinstance(node, UnaryNode):
        return _kept(inputs[0], lambda key: _keeps(node, key))
    if isinstance(node, Union):
        first = inputs[0]
        return first if all(item == first for item in inputs) else None
    if isinstance(node, TwoInputs):
        return _of_pairs(node, *inputs)
    return None


def _as_stored(node: Split) -> Placement | None:
    """A dataset that is read by as many shards as wrote it is where it was; each shard reads its own files."""
    source = node.parent
    if isinstance(source, ProgressSource) and source.in_order:
        source = source.source
    stored = source.stored if isinstance(source, (FileSource, FrameSource)) else None
    if stored is None or stored.placed_by is None or stored.shards != node.layout.shards:
        return None
    known = all(key in node.schema for key in stored.placed_by)
    return Placement.hashed(stored.placed_by, node.layout) if known else None


def moved(before: Placement | None, routing: Routing) -> Placement | None:
    """Return where rows live that lived at `before`."""
    layout = routing.layout
    spread: Spread = None
    if isinstance(routing, HashRouting):
        spread = routing.keys
    elif isinstance(routing, BroadcastRouting):
        spread = COPY
    if routing.scope == FLAT:
        return None if spread is None else Placement(layout=layout, across=spread, inside=spread)
    across, inside = _along(before, 0), _along(before, 1)
    if routing.scope == LOCAL:
        inside = spread
    elif routing.scope == GLOBAL:
        across = spread
    return None if across is None and inside is None else Placement(layout=layout, across=across, inside=inside)


def _kept(before: Placement | None, keeps: Callable[[str], bool]) -> Placement | None:
    """Return what is left of a placement when only columns that `keeps` admits are left."""
    if before is None:
        return None
    across, inside = (
        spread if not isinstance(spread, tuple) or all(map(keeps, spread)) else None
        for spread in (before.across, before.inside)
    )
    return None if across is None and inside is None else Placement(layout=before.layout, across=across, inside=inside)


def _of_pairs(node: TwoInputs, left: Placement | None, right: Placement | None) -> Placement | None:
    """A pair lives where its rows meet: of a copied row only the place where its partner lives counts."""
    names = {source: name for name, source in node.matching.right_as}
    names |= {key: key for key in node.matching.keys}
    kept_left = _kept(left, lambda key: key in node.schema and _shows_left(node, key))
    kept_right = _kept(right, lambda key: names.get(key) == key and key in node.schema)
    layout = kept_left.layout if kept_left is not None else None if kept_right is None else kept_right.layout
    if layout is None:
        return None

    def along(coordinate: int) -> Spread:
        spread = _along(kept_left, coordinate)
        if spread == COPY:
            return _along(kept_right, coordinate)
        # Right rows without a partner are where they were, wherever left ones of their key would be.
        return None if _shows_right(node) and _along(right, coordinate) != spread else spread

    across, inside = along(0), along(1)
    return None if across is None and inside is None else Placement(layout=layout, across=across, inside=inside)


def _shows_right(node: TwoInputs) -> bool:
    """Whether right rows without a partner are shown."""
    return isinstance(node, Join) and node.how in ("right", "full")


def _shows_left(node: TwoInputs, key: str) -> bool:
    """Whether every row of the result has the left input's column: an unmatched right row only has shared keys."""
    if not _shows_right(node):
        return True
    matching = node.matching
    pairs = zip(matching.left_on, matching.right_on, strict=True)
    shown = {source for _, source in matching.right_as}
    return key in matching.keys or any(left == key == right and right not in shown for left, right in pairs)


def _keeps(node: UnaryNode, key: str) -> bool:
    """Whether the column is in the node's output as it was in its input."""
    test = _KEEPS.get(type(node))
    return key in node.schema and (test is None or test(node, key))


_KEEPS: dict[type[UnaryNode], Callable[[Any, str], bool]] = {
    Select: lambda node, key: any(item.name == key == item.source_column for item in node.columns),
    Aggregate: lambda node, key: key in node.keys,
    ConsecutivePairs: lambda node, key: key in node.keys,
    Detect: lambda node, key: key in node.keys,
    SelectMany: lambda node, key: key != node.column,
    MapBatches: lambda node, key: key in node.keys,
    Sessionize: lambda node, key: key in node.keys,
    SnapshotApply: lambda node, key: key in node.keys,
    UserOperator: lambda node, key: key in node.keys,
}
"""The nodes that may change columns; all others hand payloads on."""
