"""Nodes that change when events live and leave payloads alone. All durations are in ticks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import polars as pl

from squill.plan.expressions import Expression
from squill.plan.node import UnaryNode
from squill.plan.properties import Properties
from squill.time import TimeType

__all__ = [
    "AlterLifetime",
    "CastTime",
    "Chop",
    "ClipDuration",
    "Extend",
    "PointAtEnd",
    "Quantize",
    "Shift",
    "Stitch",
    "WaitForEnds",
    "WithDuration",
]


@dataclass(frozen=True, kw_only=True)
class WithDuration(UnaryNode):
    """end := start + duration; None is endless; events with an expression's duration ≤ 0 vanish."""

    keeps_state: ClassVar[bool] = False

    duration: int | Expression | None

    @cached_property
    def properties(self) -> Properties:
        if self.duration is None:
            return Properties(endless=True)
        if isinstance(self.duration, Expression):
            return Properties()
        return Properties(duration=self.duration)


@dataclass(frozen=True, kw_only=True)
class AlterLifetime(UnaryNode):
    """start := f(start), end := new start + duration."""

    start: Expression
    duration: int | Expression | None

    @cached_property
    def properties(self) -> Properties:
        return WithDuration(parent=self.parent, duration=self.duration).properties


@dataclass(frozen=True, kw_only=True)
class Shift(UnaryNode):
    """Move both ends of each lifetime by `by` ticks."""

    keeps_state: ClassVar[bool] = False

    by: int

    @cached_property
    def properties(self) -> Properties:
        return replace(self.parent.properties, window=None)


@dataclass(frozen=True, kw_only=True)
class Extend(UnaryNode):
    """end := end + by; what would end before it starts vanishes; endless events stay endless."""

    by: int

    @cached_property
    def properties(self) -> Properties:
        before = self.parent.properties
        duration = None if before.duration is None else before.duration + self.by
        return replace(before, duration=duration if duration is None or duration > 0 else None, window=None)


@dataclass(frozen=True, kw_only=True)
class ClipDuration(UnaryNode):
    """end := min(end, start + limit)."""

    limit: int

    @property
    def name(self) -> str:
        return "clip"

    @cached_property
    def properties(self) -> Properties:
        before = self.parent.properties
        if before.endless:
            return Properties(duration=self.limit)
        if before.duration is not None:
            return Properties(duration=min(before.duration, self.limit))
        return Properties(ends_known=before.ends_known)


@dataclass(frozen=True, kw_only=True)
class PointAtEnd(UnaryNode):
    """Each event becomes the point [end, end + 1); endless events give nothing."""

    @cached_property
    def properties(self) -> Properties:
        return Properties(duration=1)


@dataclass(frozen=True, kw_only=True)
class Chop(UnaryNode):
    """Split each lifetime at every offset + k·period strictly inside it; no later than `until`, where it is given."""

    period: int
    offset: int
    until: int | None = None

    @cached_property
    def properties(self) -> Properties:
        return Properties(ends_known=self.parent.properties.ends_known)


@dataclass(frozen=True, kw_only=True)
class Stitch(UnaryNode):
    """Merge an event that ends at t with one of equal payload that starts at t."""

    @cached_property
    def properties(self) -> Properties:
        if self.parent.properties.endless:
            return replace(self.parent.properties, window=None)
        return Properties(ends_known=False)


@dataclass(frozen=True, kw_only=True)
class Quantize(UnaryNode):
    """Snap starts down to the grid and ends up, so that a lifetime covers every window it overlaps."""

    size: int
    period: int
    offset: int
    progress: int | None

    @cached_property
    def properties(self) -> Properties:
        before = self.parent.properties
        return Properties(ends_known=before.ends_known, endless=before.endless)


@dataclass(frozen=True, kw_only=True)
class WaitForEnds(UnaryNode):
    """Hold events back until their end is known."""

    @cached_property
    def properties(self) -> Properties:
        return replace(self.parent.properties, ends_known=True)


@dataclass(frozen=True, kw_only=True)
class CastTime(UnaryNode):
    """Count time in another unit: starts floored, ends raised where it is coarser."""

    unit: str

    @cached_property
    def time(self) -> TimeType:
        assert self.parent.time is not None
        if self.unit == "d":
            return TimeType(pl.Date())
        dtype = self.parent.time.dtype
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        return TimeType(pl.Datetime(self.unit, zone))  # type: ignore[arg-type]

    @property
    def factor(self) -> tuple[int, int]:
        """(multiply, divide) from old ticks to new ones; one of the two is 1."""
        assert self.parent.time is not None
        old, new = self.parent.time.tick_nanoseconds, self.time.tick_nanoseconds
        return (old // new, 1) if old >= new else (1, new // old)

    @cached_property
    def properties(self) -> Properties:
        before = self.parent.properties
        return Properties(ends_known=before.ends_known, endless=before.endless)
