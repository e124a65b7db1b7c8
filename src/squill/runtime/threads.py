"""Shards on threads: kernels run without the GIL, so threads are enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from squill.exchange.flow import Halted

__all__ = ["Checkpoint", "run_on_threads"]

T = TypeVar("T")

Checkpoint = Callable[[], None]
"""Called between batches; raises `Halted` when the work is in vain."""


def run_on_threads(
    work: Sequence[Callable[[Checkpoint], T]],
    threads: int,
    on_done: Callable[[int], object] | None = None,
    on_stop: Callable[[], object] | None = None,
    stop: threading.Event | None = None,
) -> list[T]:
    """Run all, at most `threads` at once, and return their results in order.

    The first error stops all, and is raised once no thread is running any more; `on_stop` is called then, to
    wake up who waits. When several fail at once the first in the order of `work` is raised, so that the same
    failure reads the same. `on_done` is told how many are done. Whoever sets `stop` ends the work with `Halted`.
    """
    stop = threading.Event() if stop is None else stop
    # Who is interrupted while a thread starts does not know of that thread, and would not wait for it.
    all_started = threading.Event()

    def checkpoint() -> None:
        if stop.is_set():
            raise Halted

    def stop_all() -> None:
        stop.set()
        all_started.set()
        if on_stop is not None:
            on_stop()

    def guarded(item: Callable[[Checkpoint], T]) -> T:
        all_started.wait()
        checkpoint()
        try:
            return item(checkpoint)
        except BaseException:
            stop_all()
            raise

    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(work))), thread_name_prefix="shard") as pool:
        try:
            futures = [pool.submit(guarded, item) for item in work]
            all_started.set()
            for count, _ in enumerate(as_completed(futures), start=1):
                if on_done is not None and not stop.is_set():
                    on_done(count)
        except BaseException:
            stop_all()
            raise
    return _results(futures)


def _results(futures: Sequence[Future[T]]) -> list[T]:
    for item in futures:
        error = item.exception()
        if error is not None and not isinstance(error, Halted):
            raise error
    return [item.result() for item in futures]
