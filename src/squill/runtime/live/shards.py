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
from squill.runtime.live.host import LivePlan
from squill.runtime.live.log import shards_of_checkpoint
from squill.runtime.live.share import default_memory

__all__ = ["Growth", "LayoutOf", "Shards", "multiple_of", "shards_for"]

LayoutOf = Callable[[int], Layout]
MOST_SHARDS = 4_096
LEAST_GAIN = 0.9
"""What is left of the largest state must be less than so much of it for another division to be worth its while."""
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


class Growth:
    """Divides the shards of a running query whose states do not fit into memory by themselves, as long as it helps."""

    def __init__(self, plan: LivePlan, layout_of: LayoutOf) -> None:
        self._memory = default_memory() if plan.memory is None else plan.memory
        self._emit = plan.emit
        self._layout_of = layout_of
        self._largest_before: int | None = None
        self._helps = True

    def divided(self, shards: Shards, largest: int) -> Shards | None:
        """Return the plan on twice the shards when the largest state is too large; None when all stays as it is."""
        if largest <= self._memory or not self._helps:
            return None
        counts = shards_in(shards.root)
        twice = [count if count == 1 else 2 * count for count in counts]
        # One key can be all there is, and some operators cannot forget: then parts are as large as the whole.
        before, self._largest_before = self._largest_before, largest
        self._helps = max(counts) < MOST_SHARDS and (before is None or largest < LEAST_GAIN * before)
        if not self._helps or twice == counts:
            return None
        try:
            found = divided(shards, twice, self._layout_of, self._emit)
        except IndivisibleError as error:
            self._helps = False
            log.info("a state of %d bytes is more than the memory, and stays whole: %s", largest, error)
            return None
        log.info("a state has %d bytes, more than the memory: now there are %d shards", largest, max(twice))
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
