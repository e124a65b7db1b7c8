"""The parent of Python workers: imports what every task needs, then forks workers that have it already.

Spark starts it as ``python -m squill.runtime.spark.daemon``. It may only import, and prepare what starts no thread:
after one Polars query here the workers that are forked afterwards would hang.
"""

from __future__ import annotations

import gc

from pyspark import daemon, worker

from squill.engine.compile import load_operators
from squill.engine.kernels.jit import cache_folder
from squill.runtime.allocation import keep_freed_memory
from squill.runtime.spark import task

__all__ = ["main"]


def main() -> None:
    """Import, then serve."""
    assert callable(task.run_task)
    assert callable(worker.main)  # which workers would import each
    load_operators()
    cache_folder()
    keep_freed_memory()
    # PySpark collects garbage after every task, and would look at all that is imported here: 70 ms before the next.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
