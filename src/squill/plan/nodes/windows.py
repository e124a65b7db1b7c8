"""Windows: nodes that set lifetimes so that a snapshot aggregate becomes a windowed one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from squill.errors import PlanError
from squill.plan.node import Node, UnaryNode
from squill.plan.properties import Properties, WindowShape
from squill.plan.schema import Schema
from squill.time import TimeType

__all__ = ["CountWindow", "HoppingWindow", "PerWindow", "SessionWindow"]

WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True, kw_only=True)
class HoppingWindow(UnaryNode):
    """start := g(t), end := g(t + size), g(x) the first grid point after x (closed left) or not before it."""

    keeps_state: ClassVar[bool] = False

    size: int
    hop: int
    offset: int
    closed: str

    @cached_property
    def properties(self) -> Properties:
        # g(t + size) = g(t) + size exactly when hops fit the size; then all lifetimes are equally long.
        duration = self.size if self.size % self.hop == 0 else None
        return Properties(duration=duration, window=WindowShape(self.size, self.hop, self.offset, self.closed))


@dataclass(frozen=True, kw_only=True)
class CountWindow(UnaryNode):
    """An event lives until the n-th later event of its key; forever if none comes."""

    count: int
    keys: tuple[str, ...]

    @cached_property
    def properties(self) -> Properties:
        return Properties(ends_known=False)


@dataclass(frozen=True, kw_only=True)
class SessionWindow(UnaryNode):
    """Per key: every event lives from its start to the end of its session."""

    timeout: int
    max_duration: int | None
    rows: str
    keys: tuple[str, ...]

    @cached_property
    def properties(self) -> Properties:
        if self.rows == "final":
            return Properties(duration=1)
        return Properties(ends_known=False)


@dataclass(frozen=True, kw_only=True)
class PerWindow(UnaryNode):
    """One row per key and window, with the window's bounds as columns."""

    window: WindowShape
    keys: tuple[str, ...]

    @classmethod
    def over(cls, parent: Node, keys: tuple[str, ...]) -> PerWindow:
        window = parent.properties.window
        if window is None or parent.properties.ends_known:
            raise PlanError(
                "per_window: there is no aggregate over a hopping or tumbling window before it",
                "write .hopping_window(size, hop).aggregate(…).per_window(); where and select may stand between.",
            )
        clash = [name for name in WINDOW_COLUMNS if name in parent.schema]
        if clash:
            raise PlanError(f"per_window: the column {clash[0]!r} is there already", "rename it before.")
        return cls(parent=parent, window=window, keys=keys)

    @cached_property
    def time(self) -> TimeType:
        assert self.parent.time is not None
        return self.parent.time

    @cached_property
    def schema(self) -> Schema:
        times = dict.fromkeys(WINDOW_COLUMNS, self.time.dtype)
        keys = {name: self.parent.schema[name] for name in self.keys}
        rest = {name: dtype for name, dtype in self.parent.schema.items() if name not in keys}
        return Schema({**keys, **times, **rest})

    @cached_property
    def properties(self) -> Properties:
        return Properties(duration=self.window.hop, per_window=True)
