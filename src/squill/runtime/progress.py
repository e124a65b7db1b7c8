"""How far a run has come: told to a callback now and then, shown as a bar on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from squill.errors import PlanError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["OnProgress", "Progress", "ProgressBar", "progress_bar", "reporting"]

SETTING = "SQUILL_PROGRESS"
"""The environment variable that turns the bar ``on``, also where there is no terminal, or ``off``."""
PATIENCE_SECONDS = 1.0
"""Work that ends sooner shows nothing."""
POLL_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is.

    ``stage``  runs of so many ``stages``; of its ``shards`` so many are ``done``.
    ``rows``   that were read from stored sources; where shards are tasks of others, by those that are done.
    ``total``  how many rows there are to read, where that is known.
    """

    stage: int
    stages: int
    done: int
    shards: int
    rows: int | None = None
    total: int | None = None

    @property
    def fraction(self) -> float:
        """Which part of the work is done, as far as can be told: by rows, then by shards; stages count alike."""
        if self.rows is not None and self.total and self.stages == 1:
            return min(1.0, self.rows / self.total)
        return (self.stage - 1 + self.done / max(self.shards, 1)) / max(self.stages, 1)

    def __str__(self) -> str:
        said = f"stage {self.stage} of {self.stages}, {self.done} of {self.shards} shards"
        if self.rows is None:
            return said
        return f"{said}, {self.rows:,} rows" if self.total is None else f"{said}, {self.rows:,} of {self.total:,} rows"


OnProgress = Callable[[Progress], object]


@contextmanager
def reporting(
    look: Callable[[], Progress], on_progress: OnProgress | None, total: Callable[[], int | None]
) -> Iterator[Callable[[], object]]:
    """Tell of progress now and then while in context, and whenever what it gives is called.

    A thread of its own looks at what the work counts anyway, so that the work knows nothing of it; when nobody wants
    to know there is none. `total`, which may take a while, is asked by that thread, once.
    """
    if on_progress is None:
        yield lambda: None
        return
    ended = threading.Event()
    found: list[int | None] = []

    def tell() -> None:
        on_progress(replace(look(), total=found[0] if found else None))

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            if not found:
                found.append(total())
            tell()

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield tell
    finally:
        ended.set()
        watcher.join()


class ProgressBar:
    """A bar of rich on one line, once the work has lasted long enough to be worth it; `clear` takes it away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._is_over = False

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            if self._is_over or time.monotonic() - self._begin < PATIENCE_SECONDS:
                return
            if self._bar is None:
                self._bar = _bar(self._stream)
                self._task = self._bar.add_task("", total=1.0, told="")
                self._bar.start()
            assert self._task is not None
            self._bar.update(self._task, completed=progress.fraction, told=str(progress), refresh=True)

    def clear(self) -> None:
        """Leave the terminal as it was found, cursor and all; later calls show nothing."""
        with self._lock:
            self._is_over = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


def _bar(stream: TextIO) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Shown

    # Whether anybody looks was decided before; output of the program's own is nothing of ours to redirect.
    console = Console(file=stream, force_terminal=True)
    columns = (BarColumn(bar_width=24), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    return Shown(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )


@contextmanager
def progress_bar() -> Iterator[ProgressBar | None]:
    """Give a bar on standard error while in context, or None when nobody looks at it."""
    bar = ProgressBar(sys.stderr) if _is_wanted() else None
    try:
        yield bar
    finally:
        if bar is not None:
            bar.clear()


def _is_wanted() -> bool:
    setting = os.environ.get(SETTING, "")
    if setting not in ("", "on", "off"):
        raise PlanError(f"{SETTING} is {setting!r}", 'use "on" or "off", or leave it out: then terminals have a bar.')
    if sys.stderr is None or setting == "off":
        return False
    return setting == "on" or (sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
