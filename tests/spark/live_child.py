"""A live query on a Spark of its own that kills its own process at a chosen moment.

As a program: ``live_child.py <folder> <moment> <turn>`` runs the query of `windows` over ``<folder>/in`` and dies
when the moment comes for the turn-th time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import squill as sq
from squill.runtime.live.log import EpochLog
from squill.runtime.live.sinks import FolderSink
from squill.runtime.spark.live import SparkRunner

__all__ = ["MOMENTS", "run", "windows"]


def windows(clicks: sq.ShardedStream) -> sq.ShardedStream:
    """Return the query: two movements, so that there are three waves, of which two keep state."""
    counted = clicks.rekey("k").redistribute().query(lambda s: s.hopping_window(50, 10).aggregate(n=sq.count()))
    return counted.rekey("n").redistribute().query(lambda s: s.aggregate(keys=sq.count()))


def run(cluster: sq.Cluster, folder: Path) -> sq.ShardedStream:
    """Run the query to its end, from wherever its checkpoint is."""
    clicks = cluster.stream(folder / "in", start="t", files_per_epoch=1)
    windows(clicks).start(str(folder / "out"), checkpoint=folder / "ck", until_now=True).wait()
    return clicks


MOMENTS: dict[str, tuple[type, str, bool]] = {
    "before an epoch is written down": (EpochLog, "begin", True),
    "when an epoch was written down": (EpochLog, "begin", False),
    "before a wave": (SparkRunner, "work", True),
    "when a wave has written its states": (SparkRunner, "work", False),
    "before the commit": (EpochLog, "commit", True),
    "before files are published": (FolderSink, "publish", True),
    "when files were published": (FolderSink, "publish", False),
}
"""By name: whose method, which one, and whether before or after it."""


def _die_at(moment: str, turn: int) -> None:
    owner, method, is_before = MOMENTS[moment]
    original: Callable[..., Any] = getattr(owner, method)
    left = turn

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if is_before and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, dying)


def main() -> None:
    folder, moment, turn = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    _die_at(moment, turn)
    with sq.spark(master="local[2]", machines=2, folder=folder) as cluster:
        run(cluster, folder)


if __name__ == "__main__":
    main()
