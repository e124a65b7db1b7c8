"""Queries over time in the order of progress: every fragment runs on the rows of one step after the other.

Where no two steps ever meet (`plan/apart.py`), the answer over all rows is the union of those over each step's. So what
lies between two movements becomes one node over progress, whose rows carry their lifetimes in columns:

::

    aggregate(keys=[user], ...)            each_step(aggregate(...))
      redistribute(user)              ->     redistribute(user)
        where(...)                             each_step(where(...))
          frame_source(start=t)                  progress_source(...)
"""

from __future__ import annotations

from dataclasses import replace

from squill.errors import PlanError, UnsupportedOperatorError
from squill.plan.assignment import AtStart
from squill.plan.build.progress import ProgressInput, placed_again
from squill.plan.expressions import END, START
from squill.plan.fragments import Channel, Fragment, ShardedPlan, sources_of
from squill.plan.node import Node
from squill.plan.nodes import Source
from squill.plan.nodes.movement import ShardInput
from squill.plan.nodes.progress import (
    AS_COLUMNS,
    AS_TIME,
    BEGINS,
    ENDS,
    EachStep,
    ProgressSource,
    StepQuery,
    with_lifetimes,
)
from squill.plan.nodes.sources import GivenSource
from squill.plan.properties import Properties
from squill.plan.rebuild import substitute
from squill.time import PROGRESS

__all__ = ["each_step", "each_step_on_shards", "over_steps"]


def over_steps(root: Node, inputs: list[ProgressInput], coarsen: int) -> Node:
    """Return the plan over the rows of one step, whichever: sources know when their rows come."""
    for item in inputs:
        for name in (BEGINS, ENDS):
            if name in item.source.schema:
                raise PlanError(f"progressive: {item.name!r} has a column {name!r}, where lifetimes go", "rename it.")
    replaced = {
        id(item.source): replace(item.over_progress(item.source, coarsen), lifetimes=AS_TIME) for item in inputs
    }
    return substitute(placed_again(root, inputs), lambda node: replaced.get(id(node)))


def each_step(root: Node) -> Node:
    """Return a plan of `over_steps` as one over progress."""
    return _Lifted(root, whole_channels=frozenset()).node(shows=True)


def each_step_on_shards(plan: ShardedPlan) -> ShardedPlan:
    """Return the fragments of such a plan as ones over progress; rows move as before."""
    whole: set[int] = set()
    fragments: list[Fragment] = []
    for fragment in plan.fragments:
        lifted = _Lifted(fragment.root, frozenset(whole))
        root = lifted.node(shows=not fragment.outputs)
        if lifted.is_whole:
            whole |= {channel.number for channel in fragment.outputs}
        outputs = tuple(replace(_checked(channel), schema=root.schema) for channel in fragment.outputs)
        fragments.append(replace(fragment, root=root, outputs=outputs))
    return ShardedPlan(fragments=tuple(fragments))


def _checked(channel: Channel) -> Channel:
    if {START, END} & set(channel.routing.columns):
        raise UnsupportedOperatorError(
            f"progressive: the query is over time, and {channel.routing} goes by the times of rows",
            "let rows go by their columns; with_columns(t=sq.start()) makes one of the time.",
        )
    return channel


class _Lifted:
    """What becomes of a fragment, or of a whole plan; `whole_channels` bring rows that every step has."""

    def __init__(self, root: Node, whole_channels: frozenset[int]) -> None:
        self._root = root
        self._sources = sources_of(root)
        self._whole = frozenset(port for port, source in enumerate(self._sources) if _has_all(source, whole_channels))

    @property
    def is_whole(self) -> bool:
        """Whether all that it gives is there at the first step."""
        return len(self._whole) == len(self._sources)

    def node(self, *, shows: bool) -> Node:
        """Return it over progress; `shows` when its rows are the answer."""
        parents = tuple(map(_carried, self._sources))
        if not shows and self._root is self._sources[0]:
            return parents[0]  # rows pass as they are
        query = substitute(self._root, lambda node: _given(node) if isinstance(node, ProgressSource) else None)
        return EachStep(parents=parents, query=StepQuery(query, self._whole), shows=shows)


def _has_all(source: Source, whole_channels: frozenset[int]) -> bool:
    if isinstance(source, ShardInput):
        return source.channel in whole_channels
    assert isinstance(source, ProgressSource)
    return isinstance(source.assignment, AtStart)


def _carried(source: Source) -> Node:
    """Return the source with progress in the place of time."""
    if isinstance(source, ProgressSource):
        return replace(source, lifetimes=AS_COLUMNS)
    assert isinstance(source, ShardInput)
    columns = source.columns if source.time is None else with_lifetimes(source.columns)
    return replace(source, columns=columns, time_type=PROGRESS, known=Properties(endless=True))


def _given(source: ProgressSource) -> Source:
    """Return what stands for the source in the query: without its rows, and without what counts them."""
    return GivenSource(
        label=source.label,
        columns=source.schema,
        lifetime=None,
        time_type=source.time,
        known=source.properties,
    )
