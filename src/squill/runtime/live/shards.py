"""On how many shards a query goes on: those of its checkpoint, or where the cluster has more, a multiple of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from squill.plan.division import Division, IndivisibleError, division_of
from squill.plan.fingerprint import fingerprint
from squill.plan.fragments import ShardedPlan, fragments_of
from squill.plan.layout import Layout
from squill.plan.node import Node
from squill.plan.relayout import is_flat, shards_in, with_shards
from squill.runtime.live.log import shards_of_checkpoint

__all__ = ["Shards", "multiple_of", "shards_for"]

LayoutOf = Callable[[int], Layout]
log = logging.getLogger("squill")


@dataclass(frozen=True, kw_only=True)
class Shards:
    """A plan on the shards that it goes on with.

    ``divisions``  by fragment, how shards were or can be divided; empty when they cannot.
    ``before``     the shards of the checkpoint, where it is of fewer.
    ``divided``    by fragment whose shards are divided, how many it had.
    """

    root: Node
    plan: ShardedPlan
    divisions: Mapping[int, Division] = field(default_factory=dict)
    before: list[int] | None = None
    divided: Mapping[int, int] = field(default_factory=dict)


def shards_for(root: Node, folder: Path | None, layout_of: LayoutOf, emit: str) -> Shards:
    """Return the plan on as many shards as its checkpoint has, or on a multiple of them where it is to have more."""
    known = None if folder is None else shards_of_checkpoint(folder)
    wanted = shards_in(root)
    if known is None or len(known) != len(wanted) or not is_flat(root):
        return on_these(root, emit)
    before = on_these(root if known == wanted else with_shards(root, known, layout_of), emit)
    shards = multiple_of(known, wanted)
    if shards == known:
        return before
    try:
        found = divided(before, shards, layout_of, emit)
    except IndivisibleError as error:
        log.info("the live query in %s keeps its %d shards: %s", folder, max(known), error)
        return before
    log.info("the live query in %s goes on with %d shards, it had %d", folder, max(shards), max(known))
    return found


def on_these(root: Node, emit: str) -> Shards:
    """Return a plan on the shards that it says."""
    plan = fragments_of(root)
    divisions = {}
    for fragment in plan.fragments:
        with suppress(IndivisibleError):
            divisions[fragment.number] = division_of(fragment, plan.channels, emit)
    return Shards(root=root, plan=plan, divisions=divisions)


def divided(before: Shards, shards: Sequence[int], layout_of: LayoutOf, emit: str) -> Shards:
    """Return the plan of a checkpoint on more shards, multiples of those that it has.

    Raises
    ------
    IndivisibleError
        It cannot be done.
    """
    found = on_these(with_shards(before.root, shards, layout_of), emit)
    if _shape(found.plan) != _shape(before.plan):
        raise IndivisibleError("its rows would move otherwise")
    counts: dict[int, int] = {}
    for old, new in zip(before.plan.fragments, found.plan.fragments, strict=True):
        if old.layout.shards != new.layout.shards:
            counts[old.number] = old.layout.shards
            # As it was: then a stored input was read as it was placed.
            division_of(old, before.plan.channels, emit)
    return replace(found, before=shards_in(before.root), divided=counts)


def multiple_of(known: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return the least multiples of the known counts that are as many as wanted.

    One shard stays one: it has all rows, and nothing tells what was meant to be done by key and what to all of them.

    Examples
    --------
    >>> multiple_of([2, 2, 1], [3, 8, 4])
    [4, 8, 1]
    """
    pairs = zip(known, wanted, strict=True)
    return [count if count == 1 else count * max(1, -(-want // count)) for count, want in pairs]


def _shape(plan: ShardedPlan) -> list[object]:
    """Return what must stay as it is: the fragments, and the channels between them."""
    return [
        (fingerprint(fragment.root), [(channel.number, channel.routing.verb) for channel in fragment.outputs])
        for fragment in plan.fragments
    ]
