"""What the user has in hand of a live query: its state, its progress, and the way to end it."""

from __future__ import annotations

import datetime as dt
import threading
import time as wall
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import polars as pl

from squill.engine.expressions import time_series
from squill.plan.nodes.live import LiveSource
from squill.runtime.live.driver import Done, LiveDriver
from squill.runtime.live.outside import Outside
from squill.runtime.live.sinks import FolderSink, Sink
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["LiveProgress", "LiveQuery", "Stable"]

LEAST_PAUSE = 0.001
"""Seconds between two looks at what is new."""
RECENT = 20
"""Rates are of so many epochs."""


@dataclass(frozen=True, kw_only=True)
class LiveProgress:
    """How far a live query has come.

    ``clock``    the time up to which the answer is complete, of the type of the query's times; None at the beginning.
    ``delay``    how far that is behind the wall clock; None where times are no dates.
    ``late``     by input, how many rows came too late.
    ``loads``    how often a shard's state was read from the checkpoint; else it was in the memory of its worker.
    ``state_bytes``  by (fragment, shard), what the last version of its state holds on disk.
    ``shards``   how many there are; of a plan whose movements name other numbers, the most.
    """

    epoch: int = 0
    shards: int = 1
    rows: int = 0
    rows_per_second: float = 0.0
    epoch_seconds: float = 0.0
    clock: Any = None
    delay: dt.timedelta | None = None
    state_bytes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    state_rows: int = 0
    loads: int = 0
    late: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stable:
    """The answer at the last committed epoch.

    ``offsets``  by input, what was read of it.
    ``frame``    of a folder as sink all rows so far, of other sinks those of the last epoch that had any.
    """

    epoch: int
    clock: Any
    offsets: Mapping[str, Any]
    frame: pl.DataFrame


class LiveQuery:
    """A running live query; made by `start`. As a context it stops itself.

    Examples
    --------
    >>> import squill as sq
    >>> clicks, given = sq.source({"t": pl.Int64}, start="t"), []
    >>> with sq.local(cores=1) as cluster:
    ...     counted = cluster.stream(clicks).query(lambda s: s.tumbling_window(10).count())
    ...     with counted.start(given.append, every="1ms") as query:
    ...         clicks.push({"t": [1, 2, 15]})
    ...         clicks.complete()
    ...         _ = query.wait()
    >>> query.status(), pl.concat(given).rows()
    ('completed', [(10, 20, 2), (20, 30, 1)])
    """

    def __init__(
        self,
        driver: LiveDriver,
        sink: Sink,
        *,
        every: float,
        until_now: bool,
        complete: bool,
        on_end: Callable[[], object],
        outside: Outside,
    ) -> None:
        self._outside = outside
        self._driver = driver
        self._sink = sink
        self._stop = threading.Event()
        self._every = every
        self._until_now = until_now
        self._complete = complete
        self._on_end = on_end
        self._status = "running"
        self._error: BaseException | None = None
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._rows = 0
        self._progress = LiveProgress(
            epoch=driver.position.epoch,
            shards=driver.shards,
            clock=self._shown_clock(driver.clock),
            late=self._late_counts(),
        )
        self._late: dict[int, pl.DataFrame] = {}
        self._thread = threading.Thread(target=self._run, name="squill-live", daemon=True)

    def begin(self) -> Self:
        """Let the query run, on a thread of its own."""
        self._thread.start()
        return self

    def step(self, *, is_final: bool = False, ended: Collection[str] = ()) -> bool:
        """Run one epoch on this thread, of a query that was not begun; return whether there was anything to do."""
        done = self._driver.step(is_final=is_final, ended=ended)
        if done is not None:
            self._note(done)
        return done is not None

    def leave(self) -> None:
        """Let go of everything that the query holds, but for what it has committed."""
        self._on_end()

    # -- asked by the user --------------------------------------------------------------------------------------

    def status(self) -> str:
        """Return "running", "stopped", "completed" (every input has come to its end) or "failed"."""
        return self._status

    def progress(self) -> LiveProgress:
        """Return how far it has come."""
        with self._lock:
            return self._progress

    @property
    def error(self) -> BaseException | None:
        """What made it fail."""
        return self._error

    @property
    def late(self) -> pl.DataFrame:
        """The late rows of all inputs that are kept, as they arrived, with how late each was.

        With several inputs only those with the columns of the first that had any are shown; see `late_of`.
        """
        with self._lock:
            found = list(self._late.values())
        alike = [frame for frame in found if frame.schema == found[0].schema]
        return pl.concat(alike) if alike else self.late_of(0)

    def late_of(self, number: int) -> pl.DataFrame:
        """Return the late rows of one input; they are numbered from 0 in the order of the plan."""
        with self._lock:
            found = self._late.get(number)
        if found is not None:
            return found
        from squill.engine.late_rows import LateRows, late_frame

        return late_frame(LateRows(0), self._driver.sources[number])

    def stable(self) -> Stable:
        """Return the answer at the last committed epoch, and what had been read by then."""
        with self._lock:
            epoch, clock = self._driver.position.epoch, self._shown_clock(self._driver.clock)
            offsets = self._driver.offsets
            frame = self._driver.last_frame
        if isinstance(self._sink, FolderSink):
            frame = self._sink.rows()
        return Stable(epoch=epoch, clock=clock, offsets=offsets, frame=pl.DataFrame() if frame is None else frame)

    def stop(self) -> None:
        """End after the epoch that is running; `start` with the same checkpoint goes on from there."""
        self._stop.set()
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends, at most `timeout` seconds; return whether it has. An error of the query is raised."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._status = self._until_end()
        except BaseException as error:  # noqa: BLE001  (it is raised where somebody waits)
            self._error = error
            self._status = "failed"
        finally:
            self.leave()

    def _until_end(self) -> str:
        driver = self._driver
        if driver.is_completed():
            driver.refuse_more()
            return "completed"
        for item in driver.inputs.values():
            item.begin(self._wake.set, every=self._every, until_now=self._until_now)
        while not self._stop.is_set():
            begin = wall.monotonic()
            self._wake.clear()
            if driver.is_completed():
                return "completed"
            is_over = self._until_now and all(item.is_over for item in driver.inputs.values())
            done = self.step()
            if not done and is_over:
                return self._finish()
            if not done or not self._until_now:
                self._wake.wait(max(self._every - (wall.monotonic() - begin), 0.0 if done else LEAST_PAUSE))
        return "stopped"

    def _finish(self) -> str:
        if not self._complete:
            return "stopped"
        self.step(is_final=True)
        return "completed"

    def _note(self, done: Done) -> None:
        with self._lock:
            self._recent.append((done.rows_read, max(done.seconds, 1e-9)))
            self._rows += done.rows_read
            for number, frame in done.late.items():
                kept = [self._late[number], frame] if number in self._late else [frame]
                self._late[number] = pl.concat(kept).tail(self._driver.sources[number].keep_late)
            rows, seconds = (sum(values) for values in zip(*self._recent, strict=True))
            clock = done.clock
            self._progress = LiveProgress(
                epoch=done.epoch,
                shards=self._driver.shards,
                rows=self._rows,
                rows_per_second=rows / seconds,
                epoch_seconds=done.seconds,
                clock=self._shown_clock(clock),
                delay=_delay(clock, self._driver.sources[0], self._outside.now()),
                state_bytes=done.state_bytes,
                state_rows=done.state_rows,
                loads=self._progress.loads + done.loads,
                late=self._late_counts(),
            )

    def _late_counts(self) -> dict[str, int]:
        return {self._driver.sources[item].label: n for item, n in self._driver.position.late.items()}

    def _shown_clock(self, clock: int) -> Any:
        source = self._driver.sources[0]
        if clock in (MINUS_INFINITY, INFINITY) or source.time is None:
            return None
        return time_series("clock", pl.Series([clock]).to_numpy(), source.time)[0]


def _delay(clock: int, source: LiveSource, now: dt.datetime) -> dt.timedelta | None:
    """Return how far a time is behind now."""
    if source.time is None or source.time.is_integer or clock in (MINUS_INFINITY, INFINITY):
        return None
    shown = time_series("clock", pl.Series([clock]).to_numpy(), source.time).cast(pl.Datetime("us"))[0]
    then = shown.replace(tzinfo=None) if shown.tzinfo else shown
    return now - then
