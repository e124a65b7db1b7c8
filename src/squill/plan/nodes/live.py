"""Rows that keep coming."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from squill.plan.nodes.sources import KEEP_LATE, Disorder, FileSource, Source

__all__ = ["LiveSource"]


@dataclass(frozen=True, kw_only=True)
class LiveSource(FileSource):
    """A live input, of which every epoch reads a part; columns and filters are pushed down to it as to files.

    ``live``        what the input is (see `squill.plan.live`).
    ``idle_after``  seconds without rows after which other inputs' time carries it along; None is never.
    """

    live: Any = field(compare=False)
    live_id: int
    disorder: Disorder
    keep_late: int = KEEP_LATE
    idle_after: float | None = None

    def details(self) -> str:
        shown = f"live {self.format}, {Source.details(self)}, {self.disorder.policy}"
        return shown if self.read is None else f"{shown}, read=[{', '.join(self.read)}]"
