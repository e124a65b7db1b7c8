"""A sharded plan cut at its movements.

Between two movements every shard works alone, so the piece of plan in between, a *fragment*, is an ordinary
plan that any engine can run on one shard's rows. Its leaf is a stored source, of which each shard reads its
own split, or a `ShardInput`, which stands for what the shard receives. Fragments are numbered from 1 in the
order in which they can run.
"""

from __future__ import annotations

from dataclasses import dataclass

from squill.errors import InternalError
from squill.plan.explain import explain
from squill.plan.node import Node
from squill.plan.nodes.movement import Redistribute, ShardInput, Split
from squill.plan.placement import Placement, placement_of
from squill.plan.rebuild import substitute
from squill.plan.rewrite import rewrite

__all__ = ["Fragment", "explain_fragments", "fragments_of"]


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """One piece of plan, run by `shards` shards.

    ``root``       the plan; its leaf is a stored source or a `ShardInput`.
    ``sender``     the fragment whose rows it receives; None when it reads a source.
    ``received``   where its input's rows live; None when that is not known.
    ``delivers``   where its rows go; None is to the driver.
    """

    number: int
    root: Node
    shards: int
    sender: int | None
    received: Placement | None
    delivers: Placement | None

    @property
    def title(self) -> str:
        return f"fragment {self.number}"


def fragments_of(root: Node) -> tuple[Fragment, ...]:
    """Cut the plan at its movements; the last fragment delivers to the driver."""
    fragments: list[Fragment] = []
    # Whole first: what a fragment sends is what the later ones look at.
    _cut(rewrite(root), None, fragments)
    return tuple(fragments)


def _cut(root: Node, delivers: Placement | None, fragments: list[Fragment]) -> Fragment:
    leaves: list[tuple[int, int | None, Placement | None]] = []
    made: dict[int, Node] = {}

    def leaf(node: Node) -> Node | None:
        if not isinstance(node, (Split, Redistribute)):
            return None
        if id(node) not in made:
            made[id(node)] = read(node) if isinstance(node, Split) else receive(node)
        return made[id(node)]

    def read(node: Split) -> Node:
        leaves.append((node.shards, None, None))
        return node.parent

    def receive(node: Redistribute) -> Node:
        placement = Placement(keys=node.keys, shards=node.shards)
        if placement_of(node.parent) == placement:
            return substitute(node.parent, leaf)  # the rows are where they should be
        sender = _cut(node.parent, placement, fragments)
        leaves.append((node.shards, sender.number, placement))
        return ShardInput(
            label=f"rows of {sender.title}",
            columns=node.schema,
            lifetime=None,
            time_type=node.time,
            known=node.properties,
        )

    local = rewrite(substitute(root, leaf))
    if len(leaves) != 1:
        raise InternalError(f"a fragment has {len(leaves)} inputs")
    ((shards, sender, received),) = leaves
    fragment = Fragment(
        number=len(fragments) + 1, root=local, shards=shards, sender=sender, received=received, delivers=delivers
    )
    fragments.append(fragment)
    return fragment


def explain_fragments(root: Node) -> str:
    """Return the plan as text, fragment by fragment in the order in which they run."""
    return "\n".join(_explain_one(fragment) for fragment in fragments_of(root))


def _explain_one(fragment: Fragment) -> str:
    source = "reads its split" if fragment.sender is None else f"receives rows of fragment {fragment.sender}"
    placed = "" if fragment.received is None else f" placed by {fragment.received}"
    goes = "collect" if fragment.delivers is None else f"redistribute by {fragment.delivers}"
    plan = "\n".join(f"  {line}" for line in explain(fragment.root).splitlines())
    return f"{fragment.title} on {fragment.shards} shards: each {source}{placed}\n{plan}\n  -> {goes}"
