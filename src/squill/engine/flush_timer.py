"""The thread of a subscription that sends on rows which have waited for `max_delay`."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Sequence
from typing import Protocol

__all__ = ["FlushTimer", "is_kept", "on_a_timer"]


class Waiting(Protocol):
    """Where rows wait."""

    @property
    def done(self) -> bool:
        """Whether no more rows can come."""

    def remaining(self) -> float | None:
        """Return the seconds until the rows that wait are due; None when none wait."""

    def send_due(self) -> None:
        """Send on what is due."""

    def keep(self, error: BaseException) -> None:
        """Take an error that is to be raised to whoever uses the source next."""


class _Here(threading.local):
    timer = False
    kept: tuple[BaseException, ...] = ()


_here = _Here()


def on_a_timer() -> bool:
    """Say whether this thread is a timer: nobody called it, so errors are kept for the next call."""
    return _here.timer


def is_kept(error: BaseException) -> None:
    """Say on a timer's thread that the error will be raised by somebody."""
    _here.kept = (*_here.kept, error)


class FlushTimer:
    """Sleeps until rows are due, and without end while none wait; ends when it is stopped or all sources are.

    It holds its sources weakly, so that a query that nobody holds can go, and its thread with it.
    """

    def __init__(self, feeds: Sequence[Waiting]) -> None:
        self._feeds = [weakref.ref(feed) for feed in feeds]
        # Reentrant: a garbage collection inside may drop the subscription, which calls stop().
        self._changed = threading.Condition(threading.RLock())
        self._stopped = False
        self.idle = False
        self._thread = threading.Thread(target=self._run, name="squill-flush", daemon=True)
        self._thread.start()
        _timers.add(self)

    def wake(self) -> None:
        """Look at the sources anew."""
        with self._changed:
            self._changed.notify()

    def stop(self) -> None:
        """Let the thread end soon."""
        self._stopped = True
        self.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, unless it is this one."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        _here.timer = True
        while self._sleep():
            for reference in self._feeds:
                feed = reference()
                if feed is None:
                    continue
                try:
                    feed.send_due()
                except BaseException as error:  # noqa: BLE001 - nobody has called: the next call raises it
                    if not any(error is item for item in _here.kept):
                        feed.keep(error)
                    _here.kept = ()
                del feed

    def _sleep(self) -> bool:
        """Return True when rows are due, False when there is nothing to wait for any more."""
        with self._changed:
            while not self._stopped:
                # Said before the sources are looked at: rows that come after the look find it said.
                self.idle = True
                alive = [feed for reference in self._feeds if (feed := reference()) is not None and not feed.done]
                if not alive:
                    return False
                remaining = min((left for feed in alive if (left := feed.remaining()) is not None), default=None)
                # A sleeping thread may not be what keeps a source alive.
                alive.clear()
                feed = None
                if remaining is not None:
                    self.idle = False
                    if remaining <= 0:
                        return True
                self._changed.wait(remaining)
                self.idle = False
        return False


_timers: weakref.WeakSet[FlushTimer] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that is inside compiled code while the interpreter goes may take the process down with it.
    timers = list(_timers)
    for timer in timers:
        timer.stop()
    for timer in timers:
        timer.join(timeout=2)
