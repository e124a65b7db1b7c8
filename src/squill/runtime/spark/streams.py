"""Streaming DataFrames as live inputs: Spark's own streaming query brings rows, batch by batch.

Its `foreachBatch` writes a batch as Arrow files, in Spark's tasks, hands them to the live query, and waits until the
epoch that takes them is committed. Spark remembers which batch it gave last, and gives the same one again after a
crash; a batch that was committed here is not taken twice. Files stand in the checkpoint until then, so that an epoch
that had begun is run again with what it had.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squill.plan.nodes.live import LiveSource
from squill.plan.nodes.tables import SpooledSource
from squill.runtime.live.inputs import News, Wake, as_files
from squill.runtime.spark.jobs import failed_without_a_word
from squill.runtime.spark.spool import written_files
from squill.runtime.splits import splits_of

__all__ = ["TableInput"]

PAUSE_SECONDS = 0.005


class _Stopped(Exception):  # noqa: N818  (it is what was asked for)
    """What Spark is told of a batch that nobody takes any more; the batch will be given again.

    By these words Spark knows a Python function that its own `stop` has interrupted, and logs no error.
    """

    def __init__(self) -> None:
        super().__init__(
            "the live query has ended\npy4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch\n"
            ": java.lang.InterruptedException"
        )


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], _Stopped)


logging.getLogger("py4j.clientserver").addFilter(_is_worth_logging)


class TableInput:
    """A streaming DataFrame; `folder` is its place in the checkpoint."""

    tells_offsets = False

    def __init__(self, source: LiveSource, folder: Path) -> None:
        self._source = source
        self._table = source.live.table
        self._folder = folder
        self._changed = threading.Condition()
        self._offered: dict[str, Any] | None = None
        self._last = -1
        self._is_closed = False
        self._query: Any = None
        self._wake: Wake = lambda: None

    # -- what Spark calls -------------------------------------------------------------------------------------

    def _take_batch(self, table: Any, batch: int) -> None:
        """Hand a batch over and wait until it is committed; returning tells Spark that it is."""
        try:
            self._hand_over(table, batch)
        except Exception:
            if self._is_closed:
                raise _Stopped from None
            raise

    def _hand_over(self, table: Any, batch: int) -> None:
        with self._changed:
            if batch <= self._last:
                return
        place = self._folder / "batches" / str(batch)
        shutil.rmtree(place, ignore_errors=True)  # of an attempt whose epoch was not begun
        place.mkdir(parents=True)
        paths, columns = written_files(self._source, table, place)
        with self._changed:
            if batch > self._last:
                self._offered = {"batch": batch, "files": paths, "columns": list(columns)}
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or batch <= self._last)
            if batch > self._last:
                raise _Stopped

    # -- what an input does -----------------------------------------------------------------------------------

    def restore(self, offset: Any) -> None:
        self._last = offset["batch"]

    def begin(self, wake: Wake, *, every: float, until_now: bool) -> None:
        self._wake = wake
        pace = {"processingTime": f"{round(every * 1000)} milliseconds"}
        trigger: dict[str, Any] = {"availableNow": True} if until_now else pace
        writer = self._table.writeStream.foreachBatch(self._take_batch).trigger(**trigger)
        self._query = writer.option("checkpointLocation", str(self._folder / "spark")).start()

    @property
    def is_over(self) -> bool:
        return self._query is not None and not self._query.isActive and self._offered is None

    def news(self) -> News | None:
        with self._changed:
            if self._offered is not None:
                return News(record=self._offered)
        if self._query is not None and not self._query.isActive and not self._is_closed:
            failure = self._query.exception()
            if failure is not None:
                raise failed_without_a_word(failure)
        return None

    def portions(self, record: Any, source: LiveSource, shards: int) -> Sequence[Any]:
        columns = source.columns.only(record["columns"])
        return splits_of(as_files(source, record["files"], SpooledSource, format="ipc", columns=columns), shards)

    def taken(self, record: Any, reached: Mapping[int, Any]) -> None:
        with self._changed:
            self._last = max(self._last, record["batch"])
            if self._offered is not None and self._offered["batch"] <= self._last:
                self._offered = None
            self._changed.notify_all()
        shutil.rmtree(self._folder / "batches" / str(record["batch"]), ignore_errors=True)

    @property
    def offset(self) -> Any:
        return {"batch": self._last}

    def close(self) -> None:
        """End Spark's query; one that waits for a batch to be taken is told to stop first, then that it was stopped."""
        stopping = None
        if self._query is not None and self._query.isActive:
            stopping = threading.Thread(target=self._query.stop, name="squill-stop", daemon=True)
            stopping.start()
            while stopping.is_alive() and self._query.isActive:
                time.sleep(PAUSE_SECONDS)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if stopping is not None:
            stopping.join()
