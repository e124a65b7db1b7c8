"""The one Spark session of a run: Squill's cluster stands on it, and Spark is asked on it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import squill as sq

__all__ = ["CORES", "cluster_of", "session"]

CORES = 2
# What Spark can do but does not unless told, and shuffles of two partitions a core: 200 are too many for two.
SETTINGS = {
    "spark.sql.window.segmentTree.enabled": "true",
    "spark.sql.join.sortMergeAsOfJoin.enabled": "true",
    "spark.sql.join.asofJoin.enabled": "true",
    "spark.sql.shuffle.partitions": str(2 * CORES),
}


@cache
def session() -> Any:
    """Return the session, as Squill starts it, with all that makes Spark fast turned on."""
    runtime: Any = sq.spark(master=f"local[{CORES}]").runtime
    for name, value in SETTINGS.items():
        runtime.session.conf.set(name, value)
    return runtime.session


def cluster_of(machines: int = CORES, cores: int = 1, channel: str = "files") -> sq.Cluster:
    """Return a cluster on the session: so many tasks of so many threads.

    The session gives a task one core, which `sq.spark` would insist on. Where one task is to use both there is
    nothing else that wants the other.
    """
    from squill.runtime.spark.runtime import SparkRuntime

    folder = Path(tempfile.gettempdir())
    return sq.Cluster(SparkRuntime(session(), machines=machines, cores=cores, folder=folder, channel=channel))
