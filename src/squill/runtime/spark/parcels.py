"""What the driver gets through the shuffle, as it comes in: rows of the answer, receipts, work, errors."""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from squill.runtime.answer import Receipt
from squill.runtime.report import Work
from squill.runtime.spark.parcel import ANSWER, ERROR, RECEIPT, WORK

__all__ = ["ParcelReader", "Spool"]

HELD_BYTES = 64 << 20

Kept: TypeAlias = "pa.Buffer | tuple[int, int]"
"""Bytes, or where they begin and end in the spool's file."""


class Spool:
    """Bytes that somebody takes when there is time for them: some in memory, the rest in a file.

    When nobody takes them before all are there, `is_taken` is False, and they stay in memory.
    """

    def __init__(self, *, is_taken: bool) -> None:
        self._is_taken = is_taken
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (this is the context manager)
        self._lock = threading.Lock()
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._file.close()

    def put(self, data: pa.Buffer) -> Kept:
        with self._lock:
            if not self._is_taken or self._held + data.size <= HELD_BYTES:
                self._held += data.size
                return data
            begin = self._file.seek(0, 2)
            self._file.write(data)
            return begin, begin + data.size

    def take(self, kept: Kept) -> pa.Buffer:
        with self._lock:
            if isinstance(kept, pa.Buffer):
                self._held -= kept.size
                return kept
            begin, end = kept
            self._file.seek(begin)
            return pa.py_buffer(self._file.read(end - begin))


class ParcelReader:
    """Takes parcels; `works` is added to."""

    def __init__(self, spool: Spool, works: list[Work]) -> None:
        self._spool = spool
        self._works = works
        self._rows: dict[int, list[Kept]] = {}
        self._errors: list[tuple[int, int, bytes]] = []

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Receipt, list[Kept]]]:
        """Yield the receipts of the answer's shards, and where their rows are."""
        for batch in batches:
            batch = batch.filter(pc.is_valid(batch.column("kind")))  # the others are filling
            content = batch.column(batch.schema.get_field_index("data"))
            for row, data in zip(batch.drop_columns(["data", "receivers"]).to_pylist(), content, strict=True):
                yield from self._take(row, data)

    def _take(self, row: dict[str, Any], data: pa.BinaryScalar) -> Iterator[tuple[Receipt, list[Kept]]]:
        match row["kind"]:
            case kind if kind == ANSWER:
                self._rows.setdefault(row["sender"], []).append(self._spool.put(data.as_buffer()))
            case kind if kind == RECEIPT:
                receipt: Receipt = pickle.loads(data.as_py())  # noqa: S301  (written by our own task)
                # They come after the rows.
                yield receipt, self._rows.pop(receipt.shard, [])
            case kind if kind == WORK:
                self._works.append(pickle.loads(data.as_py()))  # noqa: S301
            case kind if kind == ERROR:
                self._errors.append((row["place"], row["sender"], data.as_py()))

    def raise_first_error(self) -> None:
        """Raise the error of the first task of the first wave that has one: the same failure is to read the same."""
        if self._errors:
            raise pickle.loads(min(self._errors)[2])  # noqa: S301  (written by our own task)
