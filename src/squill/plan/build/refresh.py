"""Stored tables that live plans read again."""

from __future__ import annotations

from squill.errors import PlanError
from squill.plan.build.sources import wall_seconds
from squill.plan.live import Refresh
from squill.plan.node import Node, walk
from squill.plan.nodes.live import LiveSource, RefreshedSource
from squill.plan.nodes.movement import Move, Split
from squill.plan.properties import Properties
from squill.plan.rebuild import substitute
from squill.plan.routing import RoundRobinRouting
from squill.time import Duration, TimeType

__all__ = ["refresh_of", "with_refreshed"]


def refresh_of(
    given: Duration | None, source: Node, paths: object, file_format: str | None, schema: object = None
) -> Refresh | None:
    """Return how often a source is to be read again, if it can be."""
    seconds = wall_seconds(given, "scan: refresh")
    if seconds is None:
        return None
    if source.time is not None:
        raise PlanError(
            "scan: refresh= is for tables without times; these rows have their own",
            "cluster.stream(folder, start=…) takes new files of such rows as they come.",
        )
    nested = [name for name, dtype in source.schema.items() if dtype.is_nested()]
    if nested:
        raise PlanError(
            f"scan: refresh= compares rows, and column {nested[0]!r} is {source.schema[nested[0]]}",
            "keep lists and structs out of the table, or as text.",
        )
    return Refresh(seconds=seconds, paths=paths, format=file_format, schema=schema)


def with_refreshed(root: Node) -> Node:
    """Return a live plan in which tables that are read again have lifetimes, in the time of the live inputs."""
    times = [node.time for node in walk(root) if isinstance(node, LiveSource) and node.time is not None]
    if not times:
        return root

    def change(node: Node) -> Node | None:
        if not isinstance(node, Split) or node.refresh is None:
            return None
        return Split(parent=_refreshed(node, node.refresh, times[0]), layout=node.layout)

    changed = substitute(root, change)
    for node in walk(changed):
        if isinstance(node, Move) and isinstance(node.routing, RoundRobinRouting) and changed is not root:
            _refuse_unfollowed(node)
    return changed


def _refreshed(node: Split, refresh: Refresh, time: TimeType) -> RefreshedSource:
    return RefreshedSource(
        label=getattr(node.parent, "label", "table"),
        columns=node.schema,
        lifetime=None,
        time_type=time,
        known=Properties(ends_known=False),
        live=refresh,
        live_id=id(refresh),
    )


def _refuse_unfollowed(node: Move) -> None:
    """Raise when ends of rows would not find the shard that the rows were sent to."""
    if node.properties.ends_known or not any(isinstance(item, RefreshedSource) for item in walk(node)):
        return
    raise PlanError(
        "start: rows of a table that is read again cannot be dealt out in turn: nobody would know where they end",
        "use redistribute(), broadcast() or multicast(…), which go by what is in a row, instead of reshard().",
    )
