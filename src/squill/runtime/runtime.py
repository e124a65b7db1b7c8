"""What every runtime offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from squill.engine.batch import Batch
from squill.plan.fragments import Fragment
from squill.runtime.progress import OnProgress

__all__ = ["Runtime"]


class Runtime(Protocol):
    """Runs the fragments of a plan on its shards."""

    @property
    def shards(self) -> int:
        """How many shards it runs at once; what a plan is cut into unless it says otherwise."""
        ...

    def describe(self) -> str:
        """Return the words for it in `repr`."""
        ...

    def run(self, fragments: Sequence[Fragment], on_progress: OnProgress | None = None) -> list[Batch]:
        """Return the last fragment's rows as intervals, in the order of their starts."""
        ...

    def close(self) -> None:
        """Give back what it holds; later calls do nothing."""
        ...
