"""Nodes with several inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from squill.plan.codec import Codec
from squill.plan.node import Node
from squill.plan.properties import Properties
from squill.plan.schema import Schema
from squill.time import TimeType

__all__ = ["Union"]


@dataclass(frozen=True, kw_only=True)
class Union(Node):
    """All events of all inputs, equal ones kept; relational inputs beside temporal ones live for ever."""

    parents: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parents

    @cached_property
    def schema(self) -> Schema:
        return self.parents[0].schema

    @cached_property
    def time(self) -> TimeType | None:
        return next((parent.time for parent in self.parents if parent.time is not None), None)

    @cached_property
    def codecs(self) -> Mapping[str, Codec]:
        return self.parents[0].codecs

    @cached_property
    def properties(self) -> Properties:
        all_properties = [parent.properties for parent in self.parents]
        durations = {item.duration for item in all_properties}
        windows = {item.window for item in all_properties}
        same_duration = durations.pop() if len(durations) == 1 else None
        endless = all(item.endless for item in all_properties)
        same_window = windows.pop() if len(windows) == 1 else None
        return Properties(
            ends_known=all(item.ends_known for item in all_properties),
            endless=endless,
            duration=same_duration,
            window=same_window if all(item.ends_known for item in all_properties) else None,
            per_window=all(item.per_window for item in all_properties),
        )
