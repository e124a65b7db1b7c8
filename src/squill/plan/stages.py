"""Fragments that run together: what moves inside a machine only joins fragments into one *stage*.

A stage runs as one task per machine, in which the rows of local movements are handed on by reference. Where
that would make a stage wait for itself (a stream that comes back to a machine on a longer way too), the local
movement is a border like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from squill.plan.fragments import Fragment, ShardedPlan
from squill.plan.layout import Layout
from squill.plan.routing import LOCAL

__all__ = ["Stage", "stages_of", "waves_of"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Fragments that run together, in an order in which rows flow; all of one layout.

    ``inner``    the channels between fragments of the stage.
    ``outputs``  the channels that a later stage reads; one may be inner too.
    """

    number: int
    fragments: tuple[Fragment, ...]
    inner: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return self.fragments[0].layout

    @property
    def inputs(self) -> tuple[int, ...]:
        """The channels that come from earlier stages."""
        read = {channel for fragment in self.fragments for channel in fragment.inputs if channel is not None}
        return tuple(sorted(read - set(self.inner)))


def stages_of(plan: ShardedPlan) -> tuple[Stage, ...]:
    """Return the stages in an order in which they can run; the last one gives the answer."""
    channels = plan.channels
    stage_of: dict[int, int] = {}
    for fragment in plan.fragments:
        read = [channels[number] for number in fragment.inputs if number is not None]
        local = [stage_of[channel.sender] for channel in read if channel.routing.scope == LOCAL]
        others = [stage_of[channel.sender] for channel in read if channel.routing.scope != LOCAL]
        # Stages only wait for earlier ones: in a stage that is not, what comes from elsewhere could not be had.
        if local and max(local) > max(others, default=0):
            stage_of[fragment.number] = max(local)
        else:
            stage_of[fragment.number] = max(stage_of.values(), default=0) + 1
    return tuple(_stage(plan, stage_of, number) for number in sorted(set(stage_of.values())))


def waves_of(plan: ShardedPlan) -> tuple[tuple[Stage, ...], ...]:
    """Return the stages in waves: those of a wave wait for earlier waves only, so they can run side by side."""
    stages = stages_of(plan)
    sender = {channel: stage.number for stage in stages for channel in stage.outputs}
    depth: dict[int, int] = {}
    for stage in stages:
        depth[stage.number] = 1 + max((depth[sender[channel]] for channel in stage.inputs), default=0)
    deepest = max(depth.values())
    return tuple(tuple(stage for stage in stages if depth[stage.number] == level) for level in range(1, deepest + 1))


def _stage(plan: ShardedPlan, stage_of: dict[int, int], number: int) -> Stage:
    fragments = tuple(fragment for fragment in plan.fragments if stage_of[fragment.number] == number)
    sent = [channel.number for fragment in fragments for channel in fragment.outputs]
    readers = {channel: {stage_of[reader.number] for reader in plan.readers(channel)} for channel in sent}
    return Stage(
        number=number,
        fragments=fragments,
        inner=tuple(channel for channel in sent if number in readers[channel]),
        outputs=tuple(channel for channel in sent if readers[channel] - {number}),
    )
