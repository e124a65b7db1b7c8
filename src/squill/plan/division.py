"""How the state of a shard becomes that of several.

Shards are named by ``hash % shards``, so that shard s of N is s, s + N, s + 2N, … of a multiple of N: its *parts*, of
which the first has its number. What a part takes over of an operator's state follows from where the rows of its inputs
live:

- placed by a key, or copies: every part takes the whole state, and from now on is given the rows of its own keys only.
  What it knows of other keys is forgotten, or sieved out before it comes to who has forgotten them;
- anywhere: the first part takes the state, the others begin empty, at the same time. So an event must be whole, or
  its end would come to a part that has not seen it begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from squill.plan.fragments import Channel, Fragment
from squill.plan.node import Node, walk
from squill.plan.nodes import FileSource, FrameSource, Source, TwoInputs
from squill.plan.nodes.live import RefreshedSource
from squill.plan.nodes.movement import ShardInput
from squill.plan.placement import Placement, moved, placement_after
from squill.plan.routing import FLAT, MulticastRouting

__all__ = ["Division", "IndivisibleError", "Lives", "division_of"]


class IndivisibleError(Exception):
    """The text says why the shards of a fragment cannot be divided."""


@dataclass(frozen=True)
class Lives:
    """Where rows live: by the hash of `keys`; as copies, on every shard; anywhere, when both are empty."""

    keys: tuple[str, ...] = ()
    are_copies: bool = False

    @property
    def is_known(self) -> bool:
        return bool(self.keys) or self.are_copies

    @classmethod
    def of(cls, placement: Placement | None) -> Lives:
        if placement is None:
            return cls()
        if placement.keys is not None:
            return cls(keys=placement.keys)
        return cls(are_copies=isinstance(placement.across, str) and isinstance(placement.inside, str))


@dataclass(frozen=True, kw_only=True)
class Division:
    """How the shards of one fragment are divided.

    ``inputs``    by node, in plan order: where the rows of each of its inputs live; a leaf has none.
    ``outputs``   by node: where its own rows live.
    ``is_whole``  by node: whether every part takes its state; else the first one does.
    """

    inputs: tuple[tuple[Lives, ...], ...]
    outputs: tuple[Lives, ...]
    is_whole: tuple[bool, ...]

    @property
    def answer(self) -> Lives:
        """Where the fragment's rows live."""
        return self.outputs[-1]


def division_of(fragment: Fragment, channels: Mapping[int, Channel], emit: str) -> Division:
    """Return how a fragment's shards are divided; `channels` feed its leaves, `emit` is the form of its answer.

    Raises
    ------
    IndivisibleError
        It cannot be done.
    """
    analysis = _Analysis(fragment, channels)
    for node in walk(fragment.root):
        analysis.add(node)
    return analysis.finished(fragment, emit)


class _Analysis:
    def __init__(self, fragment: Fragment, channels: Mapping[int, Channel]) -> None:
        self._fragment = fragment
        self._channels = channels
        self._placements: dict[int, Placement | None] = {}
        self._parts_meet: dict[int, bool] = {}
        """By node: whether both ends of each of its events come to the same part."""
        self._inputs: list[tuple[Lives, ...]] = []
        self._outputs: list[Lives] = []
        self._is_whole: list[bool] = []

    def add(self, node: Node) -> None:
        if isinstance(node, Source):
            self._placements[id(node)] = self._of_leaf(node)
            self._parts_meet[id(node)] = True
            self._inputs.append(())
            self._outputs.append(self._lives(node))
            self._is_whole.append(True)
            return
        before = [self._placements[id(parent)] for parent in node.inputs]
        self._placements[id(node)] = placement_after(node, before)
        inputs = tuple(self._lives(parent) for parent in node.inputs)
        is_whole = all(item.is_known for item in (*inputs, self._lives(node)))
        self._inputs.append(inputs)
        self._outputs.append(self._lives(node))
        self._is_whole.append(is_whole)
        meets = [is_whole or self._meets(parent) for parent in node.inputs]
        self._parts_meet[id(node)] = all(meets) or node.properties.ends_known
        if node.keeps_state and not is_whole:
            self._check(node, inputs, meets=all(meets))

    def _lives(self, node: Node) -> Lives:
        return Lives.of(self._placements[id(node)])

    def _meets(self, node: Node) -> bool:
        """Whether both ends of each event of `node` come to the same part, where only its own rows are let through."""
        return node.properties.ends_known or (not self._lives(node).keys and self._parts_meet[id(node)])

    def _of_leaf(self, node: Source) -> Placement | None:
        if isinstance(node, ShardInput):
            routing = self._channels[node.channel].routing
            if routing.scope != FLAT:
                raise IndivisibleError(f"{routing.verb} moves rows with scope={routing.scope!r}")
            if isinstance(routing, MulticastRouting):
                raise IndivisibleError("multicast names its shards by number")
            # Without a key all rows are on the first shard, and stay there.
            return moved(None, routing) if routing.columns or routing.verb == "broadcast" else None
        if isinstance(node, RefreshedSource):
            raise IndivisibleError(f"{node.label!r} is read again, and its changes go to the shards that have its rows")
        stored = node.stored if isinstance(node, (FileSource, FrameSource)) else None
        if stored is not None and stored.placed_by is not None and stored.shards == self._fragment.layout.shards:
            raise IndivisibleError(f"{node.label!r} is read as it is placed, on {stored.shards} shards")
        return None

    def _check(self, node: Node, inputs: tuple[Lives, ...], *, meets: bool) -> None:
        """Raise when the state of a node whose rows live anywhere cannot be left to the first part."""
        if any(item.are_copies for item in inputs):
            raise IndivisibleError(f"{node.name} has copied rows beside those of its own shard")
        placed_by = {key for item in inputs for key in item.keys}
        if placed_by and (isinstance(node, TwoInputs) or placed_by <= set(getattr(node, "keys", ()))):
            raise IndivisibleError(f"the rows of {node.name} do not tell {', '.join(sorted(placed_by))} any more")
        if not meets:
            raise IndivisibleError(f"the events that {node.name} is given have no ends when they begin")

    def finished(self, fragment: Fragment, emit: str) -> Division:
        root = fragment.root
        answer = self._lives(root)
        if not fragment.outputs and emit == "closed" and not answer.is_known and not self._parts_meet[id(root)]:
            raise IndivisibleError("the events of the answer have no ends when they begin")
        return Division(inputs=tuple(self._inputs), outputs=tuple(self._outputs), is_whole=tuple(self._is_whole))
