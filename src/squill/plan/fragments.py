"""A sharded plan cut at its movements.

Between two movements every shard works alone, so the piece of plan in between, a *fragment*, is an ordinary
plan that any engine can run on one shard's rows. Its leaves are stored sources, of which each shard reads its
own split, and `ShardInput`s, which stand for what the shard receives over a *channel*. Fragments are numbered
from 1 in the order in which they can run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from squill.errors import InternalError
from squill.plan.explain import explain
from squill.plan.layout import Layout
from squill.plan.node import Node, walk
from squill.plan.nodes import Source
from squill.plan.nodes.movement import Move, ShardInput, Split
from squill.plan.rebuild import substitute
from squill.plan.rewrite import rewrite
from squill.plan.rewrite.choose_join_table import choose_join_table
from squill.plan.rewrite.leave_out_movements import leave_out_movements
from squill.plan.routing import Routing
from squill.plan.schema import Schema

__all__ = ["Channel", "Fragment", "ShardedPlan", "explain_fragments", "explain_plan", "fragments_of", "sources_of"]


@dataclass(frozen=True, kw_only=True)
class Channel:
    """The way of the rows of one movement: from the fragment `sender` to those that read the channel."""

    number: int
    sender: int
    routing: Routing
    schema: Schema


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """One piece of plan, run by every shard of `layout`.

    ``root``      the plan; its leaves are stored sources and `ShardInput`s.
    ``outputs``   the channels that its rows go to; none for the last fragment, whose rows are the answer.
    ``inputs``    by leaf, in the order of `sources_of`, the number of its channel; None is a stored source.
    """

    number: int
    root: Node
    layout: Layout
    outputs: tuple[Channel, ...] = ()

    @property
    def title(self) -> str:
        return f"fragment {self.number}"

    @property
    def inputs(self) -> tuple[int | None, ...]:
        return tuple(leaf.channel if isinstance(leaf, ShardInput) else None for leaf in sources_of(self.root))

    @property
    def reads_row_by_row(self) -> bool:
        """Whether it has one source, which is stored, and handles each of its rows by itself."""
        return self.inputs == (None,) and not any(node.keeps_state for node in walk(self.root))


@dataclass(frozen=True, kw_only=True)
class ShardedPlan:
    """All fragments, in an order in which they can run, the last of which gives the answer."""

    fragments: tuple[Fragment, ...]

    @property
    def answer(self) -> Fragment:
        return self.fragments[-1]

    @property
    def channels(self) -> dict[int, Channel]:
        return {channel.number: channel for fragment in self.fragments for channel in fragment.outputs}

    def readers(self, channel: int) -> list[Fragment]:
        """Return the fragments that read a channel."""
        return [fragment for fragment in self.fragments if channel in fragment.inputs]


def sources_of(root: Node) -> list[Source]:
    """Return the leaves of a fragment, in the order in which the engine has their entries."""
    return [node for node in walk(root) if isinstance(node, Source)]


def fragments_of(root: Node) -> ShardedPlan:
    """Cut the plan at its movements; what is used twice is computed and sent once."""
    # Whole first: what a fragment sends is what the later ones look at.
    whole = choose_join_table(rewrite(leave_out_movements(root)))
    cutter = _Cutter()
    cutter.fragment(whole)
    return ShardedPlan(fragments=tuple(draft.finished() for draft in cutter.drafts))


@dataclass
class _Draft:
    """A fragment to which movements may still be added."""

    number: int
    root: Node
    layout: Layout
    outputs: list[Channel] = field(default_factory=list)

    def finished(self) -> Fragment:
        return Fragment(number=self.number, root=self.root, layout=self.layout, outputs=tuple(self.outputs))


class _Cutter:
    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self._by_root: dict[int, _Draft] = {}
        self._channels: dict[int, Channel] = {}

    def fragment(self, root: Node) -> _Draft:
        """Return the fragment that computes this node; its senders come before it."""
        if id(root) in self._by_root:
            return self._by_root[id(root)]
        layouts: list[Layout] = []
        made: dict[int, Node] = {}

        def leaf(node: Node) -> Node | None:
            if not isinstance(node, (Split, Move)):
                return None
            if id(node) not in made:
                made[id(node)] = read(node) if isinstance(node, Split) else receive(node)
            return made[id(node)]

        def read(node: Split) -> Node:
            layouts.append(node.layout)
            return node.parent

        def receive(node: Move) -> Node:
            layouts.append(node.routing.layout)
            channel = self._channel(node)
            return ShardInput(
                label=f"rows of fragment {channel.sender}",
                columns=node.schema,
                lifetime=None,
                channel=channel.number,
                encoded=tuple(node.codecs.items()),
                time_type=node.time,
                known=node.properties,
            )

        local = rewrite(substitute(root, leaf))
        if len(set(layouts)) != 1:
            raise InternalError(f"the inputs of a fragment live on {', '.join(map(str, layouts)) or 'no shard'}")
        draft = _Draft(number=len(self.drafts) + 1, root=local, layout=layouts[0])
        self.drafts.append(draft)
        self._by_root[id(root)] = draft
        return draft

    def _channel(self, node: Move) -> Channel:
        if id(node) not in self._channels:
            sender = self.fragment(node.parent)
            number = len(self._channels) + 1
            channel = Channel(number=number, sender=sender.number, routing=node.routing, schema=node.schema)
            self._channels[id(node)] = channel
            sender.outputs.append(channel)
        return self._channels[id(node)]


def explain_fragments(root: Node) -> str:
    """Return the plan as text, fragment by fragment in the order in which they run."""
    return explain_plan(fragments_of(root))


def explain_plan(plan: ShardedPlan, note: Callable[[Node | Channel | Fragment], str] = lambda _: "") -> str:
    """Return the fragments as text; `note` says more of nodes, of channels and of the last fragment, the answer."""
    return "\n".join(_explain_one(fragment, note) for fragment in plan.fragments)


def _explain_one(fragment: Fragment, note: Callable[[Node | Channel | Fragment], str]) -> str:
    sent = [f"  -> channel {item.number}: {item.routing}{_after_comma(note(item))}" for item in fragment.outputs]
    plan = "\n".join(f"  {line}" for line in explain(fragment.root, note).splitlines())
    lines = [f"{fragment.title} on {fragment.layout}", plan]
    return "\n".join([*lines, *(sent or [f"  -> the answer{_after_comma(note(fragment))}"])])


def _after_comma(text: str) -> str:
    return f", {text}" if text else ""
