"""Parcels: the rows in which Spark's shuffle carries what tasks send to each other and to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

__all__ = [
    "ANSWER", "BATCH", "DRIVER", "ERROR", "FRAME", "MARK", "PARCEL", "PARCEL_DDL", "RECEIPT", "RUNS", "WORK", "parcel",
    "parcel_contents",
]  # fmt: skip

PARCEL = pa.schema(
    [
        ("wave", pa.int32()),
        ("target", pa.int32()),
        ("kind", pa.int32()),
        ("place", pa.int32()),
        ("leaf", pa.int32()),
        ("receivers", pa.binary()),
        ("sender", pa.int32()),
        ("number", pa.int32()),
        ("first", pa.int64()),
        ("data", pa.binary()),
    ]
)
PARCEL_DDL = (
    "wave int, target int, kind int, place int, leaf int, receivers binary, sender int, number int, first bigint, "
    "data binary"
)
FRAME, BATCH, ANSWER, ERROR, RECEIPT, WORK, RUNS, MARK = range(8)
"""Kinds: a piece of a frame for a leaf of fragment `place`; rows of channel `place`; rows of the answer; an error
of task `sender` of wave `place`; what a shard of the answer has to report beside its rows, and after them; what a
shard did; where rows of channel `place` lie in files; nothing, so that its target gets a row (`run_shuffle_task`)."""
DRIVER = -1
"""The wave of what the driver is to have."""

BEFORE_ALL_TIME = -(2**63)
PARCEL_ROWS = 1 << 17
PARCEL_BYTES = 16 << 20
"""Parcels hold no more, unless a single row has more bytes: the JVM copies each of them several times."""

Bytes = TypeVar("Bytes", bytes, pa.Buffer)


def parcel(**values: Any) -> pa.RecordBatch:
    """Return one row for the shuffle."""
    row = {"receivers": b"", "leaf": 0, "sender": 0, "number": 0, "first": BEFORE_ALL_TIME, **values}
    data = pa.py_buffer(row["data"])
    arrays = [pa.array([row[entry.name]], entry.type) for entry in PARCEL if entry.name != "data"]
    # The bytes are taken as they are; a Python list of them would be copied.
    offsets = pa.py_buffer(np.array([0, data.size], np.int32))
    arrays.append(pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data]))
    return pa.RecordBatch.from_arrays(arrays, schema=PARCEL)


def parcel_contents(rows: int, encoded: Callable[[int, int], Bytes]) -> Iterator[tuple[int, Bytes]]:
    """Yield the bytes of so many rows, parcel by parcel, and of each the first row; `encoded` is given first and end.

    Rows may be texts of any length: what turns out to be too long is encoded again, in parts.

    Examples
    --------
    >>> [(first, len(data)) for first, data in parcel_contents(4, lambda low, end: bytes((end - low) * (6 << 20)))]
    [(0, 12582912), (2, 12582912)]
    """
    for low in range(0, rows, PARCEL_ROWS):
        yield from _short_contents(low, min(low + PARCEL_ROWS, rows), encoded)


def _short_contents(low: int, end: int, encoded: Callable[[int, int], Bytes]) -> Iterator[tuple[int, Bytes]]:
    data = encoded(low, end)
    parts = min(end - low, -(-len(data) // PARCEL_BYTES))
    if parts < 2:
        yield low, data
        return
    del data
    step = -(-(end - low) // parts)
    for first in range(low, end, step):
        yield from _short_contents(first, min(first + step, end), encoded)
