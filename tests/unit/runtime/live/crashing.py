"""A process that runs a live query over folders and dies at a chosen moment: python -m … '{"plan": …}'.

Files come into the folders while it runs. Without a moment it reads what is there and completes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import squill as sq
from squill.engine.state import versions
from squill.runtime.live import host, inputs, log, sinks
from squill.runtime.live.shard import LiveShard
from squill.sharded import ShardedStream

Streams = Callable[[str], ShardedStream]


def windows(stream: Streams) -> ShardedStream:
    return stream("a").rekey("k").redistribute().query(lambda s: s.hopping_window(30, 10).aggregate(n=sq.count()))


def sessions(stream: Streams) -> ShardedStream:
    found = stream("a").rekey("k").redistribute().query(lambda s: s.session_window(4).aggregate(n=sq.sum("x")))
    return found.query(lambda s: s.where(sq.col("n") > 1)).rekey("n").redistribute().query(lambda s: s.count())


def joined(stream: Streams) -> ShardedStream:
    left, right = (stream(name).rekey("k").redistribute() for name in "ab")
    return left.query(right, lambda a, b: a.with_duration(20).join(b.with_duration(5).rename({"x": "y"})))


PLANS: dict[str, Callable[[Streams], ShardedStream]] = {"windows": windows, "sessions": sessions, "joined": joined}
FILES, ROWS, SPAN = 16, 30, 40
PATIENCE = 120


def rows_of(name: str) -> list[pl.DataFrame]:
    """Return the rows of the files of an input, in the order in which they appear."""
    import numpy as np

    random = np.random.default_rng(ord(name))
    return [
        pl.DataFrame(
            {
                "t": np.sort(random.integers(number * SPAN, (number + 1) * SPAN, ROWS)),
                "k": random.integers(0, 4, ROWS),
                "x": random.integers(0, 3, ROWS),
            }
        )
        for number in range(FILES)
    ]


# -- dying ------------------------------------------------------------------------------------------------------

calls = 0


def die_at(call: int) -> None:
    """Be gone at the call of this number."""
    global calls  # noqa: PLW0603
    calls += 1
    if calls == call:
        os.kill(os.getpid(), signal.SIGKILL)


def _around(owner: Any, name: str, call: int, *, after: bool) -> None:
    real = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        if not after:
            die_at(call)
        result = real(*arguments, **options)
        if after:
            die_at(call)
        return result

    setattr(owner, name, dying)


def _half_written(owner: Any, call: int) -> None:
    """Die when a file has half of its text, under the name that it has while it is written."""
    real = owner._write

    def dying(path: Path, content: Any) -> None:
        global calls  # noqa: PLW0603
        calls += 1
        if calls == call:
            text = json.dumps(content)
            path.with_name(path.name + ".part").write_text(text[: len(text) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        real(path, content)

    owner._write = dying


MOMENTS: dict[str, Callable[[int], None]] = {
    "listing": lambda call: _around(inputs.FolderInput, "_listed", call, after=True),
    "begun": lambda call: _around(log.EpochLog, "begin", call, after=True),
    "half a record": lambda call: _half_written(log, call),
    "reading live": lambda call: _around(LiveShard, "read_live", call, after=False),
    "reading": lambda call: _around(LiveShard, "read_rest", call, after=False),
    "working": lambda call: _around(LiveShard, "work", call, after=True),
    "before a state": lambda call: _around(versions, "write_manifest", call, after=False),
    "after a state": lambda call: _around(versions, "write_manifest", call, after=True),
    "pruning": lambda call: _around(versions.VersionedJournal, "_prune", call, after=True),
    "answer": lambda call: _around(host, "write_answer", call, after=True),
    "committing": lambda call: _around(log.EpochLog, "commit", call, after=False),
    "committed": lambda call: _around(log.EpochLog, "commit", call, after=True),
    "publishing": lambda call: _around(Path, "rename", call, after=True),
    "delivering": lambda call: _around(sinks.FunctionSink, "deliver", call, after=False),
    "delivered": lambda call: _around(sinks.FunctionSink, "deliver", call, after=True),
}


def _any_time(seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


# -- living -----------------------------------------------------------------------------------------------------


def _deliver(path: Path) -> Callable[[pl.DataFrame, int], None]:
    def append(frame: pl.DataFrame, epoch: int) -> None:
        with path.open("a") as file:
            file.write(json.dumps([epoch, frame.rows()]) + "\n")

    return append


def _appear(root: Path, names: list[str]) -> None:
    """Let the files that wait come into their folders, one by one."""
    for number in range(FILES):
        for name in names:
            waiting = root / "staged" / name / f"{number:03}.parquet"
            if waiting.exists():
                shutil.move(waiting, root / name / waiting.name)  # not rename, at which some die
        time.sleep(0.01)


def _until_all_is_read(query: Any, *, wait_on: bool) -> None:
    begin = time.monotonic()
    while time.monotonic() - begin < PATIENCE and not query.wait(0.02):
        offsets = query.stable().offsets.values()
        if not wait_on and all(len(item["files"]) == FILES for item in offsets):
            return


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    root, names = Path(task["root"]), task["inputs"]
    sink: Any = _deliver(root / "delivered") if task["sink"] == "function" else str(root / "out")
    moment = task.get("moment")
    with sq.local(cores=task["shards"]) as cluster:
        schema = {"t": pl.Int64, "k": pl.Int64, "x": pl.Int64}

        def stream(name: str) -> ShardedStream:
            return cluster.stream(root / name, start="t", format="parquet", schema=schema, files_per_epoch=1)

        if moment == "any time":
            _any_time(task["call"] / 100)
        elif moment is not None:
            MOMENTS[moment](task["call"])
        query = PLANS[task["plan"]](stream).start(
            sink, checkpoint=root / "ck", every="1ms", emit=task["emit"], until_now=moment is None
        )
        _appear(root, names)
        if moment is None:
            query.wait()
        else:
            _until_all_is_read(query, wait_on=moment == "any time")
            query.stop()


if __name__ == "__main__":
    main()
