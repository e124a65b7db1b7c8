"""A plan of three stages that leaves a mark each time a shard of a stage runs, and a driver that dies over it.

As a program: ``resumable.py <folder> <action> <moment>`` begins a run and kills itself at the moment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import squill as sq
from squill.catalog import Catalog
from squill.runtime.run_folder import RunFolder
from squill.runtime.staging import Staging

__all__ = ["ACTIONS", "MOMENTS", "kill_at", "marks", "plan_in", "rows_of"]

ROWS = 4_000


def rows_of(folder: Path) -> Path:
    """Return the file that the plan reads, made when it is not there."""
    path = folder / "rows.parquet"
    if not path.exists():
        frame = pl.DataFrame({"t": range(ROWS), "k": [t * 7 % 50 for t in range(ROWS)], "x": range(ROWS)})
        frame.write_parquet(path, row_group_size=500)
    return path


def plan_in(folder: Path, cluster: sq.Cluster) -> sq.ShardedStream:
    """Return the plan: files and a frame, spread evenly, brought together by key, and again on other shards."""
    seen = folder / "seen"
    seen.mkdir(exist_ok=True)

    def marked(stage: int) -> Callable[[sq.Stream], sq.Stream]:
        def mark(frame: pl.DataFrame) -> pl.DataFrame:
            import uuid

            (seen / f"{stage}-{uuid.uuid4().hex}").touch()
            return frame

        return lambda s: s.map_batches(mark)

    extra = cluster.from_frame({"t": [1, 5, 9], "k": [1, 2, 3], "x": [10, 20, 30]}, start="t")
    first = cluster.scan(rows_of(folder), start="t").union(extra).query(marked(1)).reshard(3)
    second = first.query(marked(2)).rekey("k").redistribute(2)
    return second.query(lambda g: g.with_duration(900).aggregate(n=sq.count(), total=sq.sum("x")))


def marks(folder: Path, stage: int) -> int:
    """Return how often shards of a stage ran."""
    return len(list((folder / "seen").glob(f"{stage}-*")))


ACTIONS: dict[str, Callable[[sq.ShardedStream, Path], Any]] = {
    "collect": lambda plan, _: plan.collect(sort=True),
    "run": lambda plan, _: plan.run().frame,
    "to_storage": lambda plan, folder: plan.to_storage(folder / "out", name="kept"),
    "to_ipc": lambda plan, folder: plan.to_ipc(folder / "out"),
}


def _before(owner: type, method: str, die: Callable[[], None], is_it: Callable[..., bool]) -> None:
    original = getattr(owner, method)

    def dying(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_it(*args):
            die()
        return original(self, *args, **kwargs)

    setattr(owner, method, dying)


def _after(owner: type, method: str, die: Callable[[], None], is_it: Callable[..., bool]) -> None:
    original = getattr(owner, method)

    def dying(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if is_it(*args):
            die()
        return result

    setattr(owner, method, dying)


MOMENTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "ordered": lambda die: _after(RunFolder, "keep", die, lambda *_: True),
    "stage 1 not yet committed": lambda die: _before(RunFolder, "commit", die, lambda number, _: number == 1),
    "stage 1 committed": lambda die: _after(RunFolder, "commit", die, lambda number, _: number == 1),
    "stage 2 committed": lambda die: _after(RunFolder, "commit", die, lambda number, _: number == 2),
    "answer committed": lambda die: _after(RunFolder, "commit", die, lambda number, _: number == 3),
    "files in place": lambda die: _after(Staging, "commit", die, lambda *_: True),
    "entered in the catalog": lambda die: _after(Catalog, "put", die, lambda *_: True),
    "end recorded": lambda die: _after(Catalog, "end_run", die, lambda *_: True),
}


def kill_at(moment: str, die: Callable[[], None]) -> None:
    """Let `die` be called at the moment."""
    MOMENTS[moment](die)


if __name__ == "__main__":
    place, wanted, when = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    kill_at(when, lambda: os.kill(os.getpid(), signal.SIGKILL))
    started = sq.spark(master="local[2]", machines=2, folder=place / "runs", warehouse=place / "warehouse")
    ACTIONS[wanted](plan_in(place, started), place)
