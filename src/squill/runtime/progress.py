"""How far a run has come: a callback, or one line on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

__all__ = ["OnProgress", "Progress", "ProgressLine", "progress_line"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """So many of the shards that run together are done."""

    stage: int
    stages: int
    done: int
    shards: int

    def __str__(self) -> str:
        return f"stage {self.stage} of {self.stages}: {self.done} of {self.shards} shards"


OnProgress = Callable[[Progress], object]


class ProgressLine:
    """Writes progress over itself on one line, once the work has lasted long enough to be worth it."""

    def __init__(self, stream: TextIO, patience_seconds: float = 1.0) -> None:
        self._stream = stream
        self._begin = time.monotonic()
        self._patience = patience_seconds
        self._is_shown = False

    def __call__(self, progress: Progress) -> None:
        seconds = time.monotonic() - self._begin
        if seconds >= self._patience:
            self._stream.write(f"\r\033[K{progress}, {seconds:.0f} s")
            self._stream.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Leave the line as it was found."""
        if self._is_shown:
            self._stream.write("\r\033[K")
            self._stream.flush()


@contextmanager
def progress_line() -> Iterator[ProgressLine | None]:
    """Give a line on the terminal while in context, or None when nobody looks at one."""
    line = ProgressLine(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None
    try:
        yield line
    finally:
        if line is not None:
            line.clear()
