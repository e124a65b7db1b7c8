"""Results written to one file while they are computed, in bounded memory.

The file is written under a temporary name in its folder and takes its name when it is whole, so nobody ever
sees half of it. Rows are written as soon as their end is known: memory holds the rows that are open.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from squill.engine.arrow_form import arrow_table
from squill.engine.batch import DEFAULT_BATCH_ROWS, Batch
from squill.engine.egress import result_frame
from squill.engine.egress_closed import ClosedSink
from squill.engine.unfinished import hidden_beside, left_behind
from squill.errors import PlanError
from squill.plan.node import Node
from squill.plan.storable import refuse_unstorable
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["FileSink", "remove_left_behind"]

UNFINISHED = ".unfinished"


class Writer(Protocol):
    """What pyarrow's writers have in common."""

    def write_table(self, table: pa.Table, row_group_size: int | None = None, /) -> None: ...
    def close(self) -> None: ...


class FileSink(ClosedSink):
    """Writes rows in pieces; `finish` gives the file its name, `abandon` leaves nothing behind."""

    def __init__(self, node: Node, path: str | os.PathLike[str], file_format: str, operator: str | None = None) -> None:
        super().__init__(node, at_once=True)
        self._path = Path(path)
        self._what = operator or f"to_{file_format}"
        self._format = file_format
        self._check()
        self._temporary = hidden_beside(self._path, uuid.uuid4().hex, UNFINISHED)
        self._pieces: list[Batch] = []
        self._piece_rows = 0
        self.rows_written = 0
        self.span: tuple[int, int] | None = None
        """The earliest start and the latest end written."""
        self._schema = self._table(Batch.empty(dict(node.schema))).schema
        self._compression: str | dict[str, str] = "snappy"
        """Of a parquet file, for all columns or by column; it may be chosen until the first rows are written."""
        self._file = pa.OSFile(str(self._temporary), "wb")

    @cached_property
    def _writer(self) -> Writer:
        if self._format == "parquet":
            return pq.ParquetWriter(self._file, self._schema, compression=self._compression)
        return pa.ipc.new_file(self._file, self._schema)

    def _check(self) -> None:
        if not self._path.parent.is_dir():
            raise PlanError(f"{self._what}: there is no folder {str(self._path.parent)!r}", "make it before.")
        if self._path.is_dir():
            raise PlanError(f"{self._what}: {str(self._path)!r} is a folder", "name a file in it.")
        refuse_unstorable(self.node.schema, self._what, self._format)

    def _table(self, rows: Batch) -> pa.Table:
        return arrow_table(result_frame(rows, self.node))

    def push(self, batch: Batch, port: int = 0) -> None:
        super().push(batch, port)
        self._write_ready()  # time may never move before the end, as with rows that have none

    def advance(self, t: int, port: int = 0) -> None:
        super().advance(t, port)
        self._write_ready()
        if t == INFINITY:
            self._write()

    def _write_ready(self) -> None:
        rows = self.take_rows()
        if rows is not None:
            self._pieces.append(rows)
            self._piece_rows += len(rows)
        if self._piece_rows >= DEFAULT_BATCH_ROWS:
            self._write()

    def _write(self) -> None:
        if self._pieces:
            rows = Batch.concat(self._pieces)
            self._writer.write_table(self._table(rows))
            self.rows_written += self._piece_rows
            low, high = self.span or (INFINITY, MINUS_INFINITY)
            self.span = (min(low, int(rows.sync.min())), max(high, int(rows.other.max())))
        self._pieces, self._piece_rows = [], 0

    def finish(self) -> int:
        """Close the file, give it its name and return the number of rows."""
        self._write()
        self._writer.close()
        self._file.close()
        self._temporary.replace(self._path)
        return self.rows_written

    def abandon(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()  # or it would try again, on a closed file, when it is forgotten
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def remove_left_behind(path: Path) -> None:
    """Remove what killed processes have written of a file of this name."""
    for left in left_behind(path, UNFINISHED):
        with contextlib.suppress(OSError):  # it is another user's, or gone meanwhile
            left.unlink()
