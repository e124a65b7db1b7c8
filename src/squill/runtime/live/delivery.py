"""The way of an epoch's rows to the sink, once the epoch is committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from squill.engine.batch import Batch
from squill.errors import SquillError
from squill.plan.build.files import read_stored
from squill.plan.node import Node
from squill.runtime.live.host import answer_frame
from squill.runtime.live.log import Commit
from squill.runtime.live.outside import Outside
from squill.runtime.live.sinks import Sink

__all__ = ["Delivery"]

TRIES = 3
PAUSE_SECONDS = 0.2


class Delivery:
    """Gives a sink the rows of `node`, epoch by epoch."""

    def __init__(self, sink: Sink, node: Node, emit: str, outside: Outside) -> None:
        self._sink = sink
        self._node = node
        self._emit = emit
        self._outside = outside
        self.last_frame: pl.DataFrame | None = None
        """The rows of the last epoch that had any, where the sink takes frames."""

    def hand_over(self, commit: Commit, rows: Sequence[Batch] = (), *, again: bool = False) -> None:
        """Give the sink the rows of a committed epoch; `again` after a restart, when it may have had them."""
        if not self._sink.hands_over:
            self._sink.publish(commit.files, again=again)
            return
        held = [Path(path) for path, _ in commit.files if Path(path).exists()]
        frame: pl.DataFrame | None = None
        if rows:
            frame = answer_frame(_in_order(rows, self._emit), self._node, self._emit)
        elif held:
            frame = _frame_in_order([read_stored(path) for path in held], self._emit)
        if frame is not None:
            self.last_frame = frame
            self._try(commit.number, frame)
        for path in held:
            path.unlink(missing_ok=True)

    def _try(self, epoch: int, frame: pl.DataFrame) -> None:
        for left in range(TRIES - 1, -1, -1):
            try:
                self._sink.deliver(epoch, frame)
            except SquillError:
                if not left:
                    raise
                self._outside.sleep(PAUSE_SECONDS)
            else:
                return


def _in_order(rows: Sequence[Batch], emit: str) -> Batch:
    """Return the rows of all shards in the order in which one shard would have given them."""
    if len(rows) == 1:
        return rows[0]
    together = Batch.concat(list(rows))
    # Closed rows by end, then start; changes, whose other is their diff, by time, then diff.
    last, first = (together.other, together.sync) if emit == "changes" else (together.sync, together.other)
    return together.take(np.lexsort((last, first)))


def _frame_in_order(frames: Sequence[pl.DataFrame], emit: str) -> pl.DataFrame:
    """Return the same of frames that were written."""
    if len(frames) == 1:
        return frames[0]
    by = ["time", "diff"] if emit == "changes" else ["end", "start"]
    together = pl.concat(frames)
    if not set(by) <= set(together.columns):  # rows per window
        by = [f"window_{name}" for name in by]
    return together.sort(by, nulls_last=[emit != "changes", False], maintain_order=True)
