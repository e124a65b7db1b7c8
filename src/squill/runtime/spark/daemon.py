"""The parent of Python workers: imports what every task needs, then forks workers that have it already.

Spark starts it as ``python -m squill.runtime.spark.daemon``. It may only import, and prepare what starts no thread:
after one Polars query here the workers that are forked afterwards would hang.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

from pyspark import daemon, worker

from squill.engine.compile import load_operators
from squill.engine.kernels.jit import cache_folder
from squill.engine.large_arrays import keep_at_most, offered_by_each
from squill.engine.machine_memory import one_of
from squill.runtime.allocation import KEPT, keep_freed_memory
from squill.runtime.spark import task

__all__ = ["main"]


def until_nobody_listens(serve: Callable[..., int]) -> Callable[..., int]:
    """Let a worker end without a word when Java has closed its socket, as it does after a minute with nothing to do.

    What the worker would say at its end is then lost, which over TCP goes unnoticed.
    """

    def served(*arguments: object) -> int:
        try:
            return serve(*arguments)
        except BrokenPipeError:
            return 1

    return served


def main() -> None:
    """Import, then serve."""
    assert callable(task.run_task)
    assert callable(worker.main)  # which workers would import each
    load_operators()
    cache_folder()
    keep_freed_memory()
    processes = os.cpu_count() or 1
    one_of(processes)
    keep_at_most(KEPT, offered_by_each(processes))
    # PySpark collects garbage after every task, and would look at all that is imported here: 70 ms before the next.
    gc.collect()
    gc.freeze()
    daemon.worker = until_nobody_listens(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
