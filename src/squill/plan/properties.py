"""What is known of a stream before it runs.

Properties are derived node by node and choose among physical variants of an operator. They never change
an answer: every variant passes the same tests, and forgetting a property is always allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Properties", "WindowShape"]


@dataclass(frozen=True)
class WindowShape:
    """A hopping window in ticks; tumbling when hop = size."""

    size: int
    hop: int
    offset: int
    closed: str


@dataclass(frozen=True, kw_only=True)
class Properties:
    """What the events of a stream have in common.

    ``ends_known``      every row is an interval, or endless for good: no end edge ever follows.
    ``endless``         no event ever ends.
    ``duration``        the one length in ticks that all lifetimes have: expiry is first in, first out.
    ``window``          the hopping window that made these lifetimes, or those an aggregate summed up.
    ``per_window``      rows are windows: their bounds are columns, and results leave start and end out.
    """

    ends_known: bool = True
    endless: bool = False
    duration: int | None = None
    window: WindowShape | None = None
    per_window: bool = False

    def describe(self) -> str:
        known = [
            name
            for name, holds in [
                ("endless", self.endless),
                ("ends known", self.ends_known and not self.endless),
                ("edges", not self.ends_known),
            ]
            if holds
        ]
        if self.duration is not None:
            known.append(f"duration {self.duration}")
        return ", ".join(known)
