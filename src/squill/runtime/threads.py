"""Shards on threads: kernels run without the GIL, so threads are enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

__all__ = ["Checkpoint", "Stopped", "run_on_threads"]

T = TypeVar("T")

Checkpoint = Callable[[], None]
"""Called between batches; raises `Stopped` when the work is in vain."""


class Stopped(Exception):  # noqa: N818  (nothing went wrong here)
    """Another shard failed, or the user interrupted: this one ends without a result."""


def run_on_threads(
    work: Sequence[Callable[[Checkpoint], T]], cores: int, on_done: Callable[[int], object] | None = None
) -> list[T]:
    """Run all, at most `cores` at once, and return their results in order.

    The first error stops all, and is raised once no thread is running any more. When several fail at once the
    first in the order of `work` is raised, so that the same failure reads the same.
    """
    stop = threading.Event()

    def checkpoint() -> None:
        if stop.is_set():
            raise Stopped

    def guarded(item: Callable[[Checkpoint], T]) -> T:
        checkpoint()
        try:
            return item(checkpoint)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max_workers=max(1, min(cores, len(work))), thread_name_prefix="shard") as pool:
        futures = [pool.submit(guarded, item) for item in work]
        try:
            for count, _ in enumerate(as_completed(futures), start=1):
                if on_done is not None and not stop.is_set():
                    on_done(count)
        except BaseException:
            stop.set()
            raise
    return _results(futures)


def _results(futures: Sequence[Future[T]]) -> list[T]:
    for item in futures:
        error = item.exception()
        if error is not None and not isinstance(error, Stopped):
            raise error
    return [item.result() for item in futures]
