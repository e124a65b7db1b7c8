"""What the tasks of a wave return to the driver, as it comes in: lines of the manifest, receipts, work, errors.

The rows of the answer are in files, which are mapped, so that they may go with their folder.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from squill.exchange.segments import MANIFEST, Run, read_run
from squill.plan.schema import Schema
from squill.runtime.answer import Receipt
from squill.runtime.report import Work
from squill.runtime.spark.task import ANSWER, OUTPUT
from squill.runtime.threads import Checkpoint, run_on_threads

__all__ = ["WaveResults", "all_with_rows", "with_rows"]

ROWS_PER_THREAD = 1 << 18
"""With fewer a thread costs more than it spares."""


class WaveResults:
    """Takes the lines of finished tasks; `works` is added to."""

    def __init__(self, works: list[Work]) -> None:
        self._works = works
        self._lines: list[pa.Table] = []
        self._answers: dict[int, Run] = {}
        self._errors: list[tuple[int, bytes]] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[Receipt, Run | None]]:
        """Take lines of one task; yield the receipts among them, and the runs of their rows, if there are any."""
        # Arrow's compute functions on plain arrays: its filter of tables starts a query, which takes milliseconds.
        lines = pa.Table.from_batches([batch]).cast(OUTPUT)
        channel = lines.column("channel")
        written = lines.select(MANIFEST.names).filter(pc.is_valid(channel))
        self._lines.append(written)
        # A shard's receipt comes after the lines of what it has written.
        for line in written.filter(pc.equal(written.column("channel"), ANSWER)).to_pylist():
            self._answers[line["shard"]] = Run(**line)
        self._works += [_loaded(work) for work in lines.column("work").drop_null()]
        # Errors come with their attempt, filling does not.
        failed = lines.filter(pc.and_(pc.is_valid(lines.column("error")), pc.is_valid(lines.column("attempt"))))
        self._errors += zip(failed.column("attempt").to_pylist(), failed.column("error").to_pylist(), strict=True)
        for note in lines.column("receipt").drop_null():
            receipt: Receipt = _loaded(note)
            yield receipt, self._answers.pop(receipt.shard, None)

    def manifest(self) -> pa.Table:
        """Return what all tasks have written."""
        return pa.concat_tables(self._lines) if self._lines else MANIFEST.empty_table()

    def raise_first_error(self) -> None:
        """Raise the error of the task that was begun first: the same failure is to read the same."""
        if self._errors:
            raise pickle.loads(min(self._errors)[1])  # noqa: S301  (written by our own task)


def _loaded(value: pa.BinaryScalar) -> Any:
    return pickle.loads(value.as_py())  # noqa: S301  (written by our own task)


def with_rows(receipt: Receipt, run: Run | None, schema: Schema) -> Receipt:
    """Return the receipt with the rows that a run holds."""
    return receipt if run is None else replace(receipt, pieces=list(read_run(run, schema)))


def all_with_rows(answered: Sequence[tuple[Receipt, Run | None]], schema: Schema) -> list[Receipt]:
    """Return receipts with their rows, read side by side where there are many: the tasks are done, and cores free."""

    def read(receipt: Receipt, run: Run | None, _: Checkpoint) -> Receipt:
        return with_rows(receipt, run, schema)

    rows = sum(run.rows for _, run in answered if run is not None)
    threads = min(len(answered), len(os.sched_getaffinity(0)), max(1, rows // ROWS_PER_THREAD))
    if threads < 2:
        return [with_rows(*item, schema) for item in answered]
    return run_on_threads([partial(read, *item) for item in answered], threads)
