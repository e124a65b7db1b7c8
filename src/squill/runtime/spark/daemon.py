"""The parent of Python workers: imports what every task needs, then forks workers that have it already.

Spark starts it as ``python -m squill.runtime.spark.daemon``. It may only import. After one Polars query here the
workers that are forked afterwards would hang.
"""

from __future__ import annotations

from pyspark import daemon

from squill.engine.compile import load_operators
from squill.runtime.spark import task

__all__ = ["main"]


def main() -> None:
    """Import, then serve."""
    assert callable(task.run_task)
    load_operators()
    daemon.manager()


if __name__ == "__main__":
    main()
