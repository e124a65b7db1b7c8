"""Rows that keep coming."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from squill.plan.nodes.sources import KEEP_LATE, Disorder, FileSource, GivenSource, Source

__all__ = ["AnyInput", "LiveSource", "RefreshedSource"]


@dataclass(frozen=True, kw_only=True)
class LiveSource(FileSource):
    """A live input, of which every epoch reads a part; columns are pushed down to it as to files.

    ``live``        what the input is (see `squill.plan.live`).
    ``idle_after``  seconds without rows after which other inputs' time carries it along; None is never.
    """

    # What is late is told by the clock of the checkpoint, whatever becomes of it and however long is waited now.
    may_change: ClassVar[tuple[str, ...]] = ("disorder", "keep_late", "idle_after", "is_given")

    live: Any = field(compare=False)
    live_id: int
    disorder: Disorder
    keep_late: int = KEEP_LATE
    idle_after: float | None = None

    def details(self) -> str:
        shown = f"live {self.format}, {Source.details(self)}, {self.disorder.policy}"
        return shown if self.read is None else f"{shown}, read=[{', '.join(self.read)}]"


@dataclass(frozen=True, kw_only=True)
class RefreshedSource(GivenSource):
    """A stored table that is read again now and then: its rows live from the reading that has them to one that has not.

    ``live``  the `Refresh` that says how often.
    """

    live: Any = field(compare=False)
    live_id: int

    def details(self) -> str:
        return f"{self.label}, read again, {len(self.schema)} columns"


@dataclass(frozen=True, kw_only=True)
class AnyInput(GivenSource):
    """What a plan knows of a live input, wherever its rows come from and whatever becomes of late ones."""

    @classmethod
    def of(cls, source: LiveSource, number: int) -> AnyInput:
        return cls(
            label=f"input {number}",
            columns=source.schema,
            lifetime=None,
            time_type=source.time,
            known=source.properties,
        )

    def details(self) -> str:
        return self.label
