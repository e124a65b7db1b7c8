"""The limit: a per-key hopping count as one hand-written loop, for dense integer keys, giving the same rows.

It does what any engine must do for this answer and nothing else: no key table, no other types, no batches, no
late rows, no overflow check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import polars as pl

from benchmarks.harness import Side
from benchmarks.hopping import Hopping

__all__ = ["BARE_LOOP", "bare_loop_side"]

BARE_LOOP = "bare loop"


def bare_loop_side(query: Hopping) -> Side:
    """Return the loop over the frame's own memory."""
    assert query.key is not None
    return Side(name=BARE_LOOP, prepare=lambda frame: _prepare(query, frame), rows=_rows, peer=False)


def _prepare(query: Hopping, frame: pl.DataFrame) -> Callable[[], Any]:
    assert query.key is not None
    times, keys = frame["ts"].to_physical().to_numpy(), frame[query.key].to_numpy()
    count = int(keys.max()) + 1
    return lambda: hopping_count(times, keys, count, query.size_us, query.hop_us)


def _rows(answer: tuple[Any, ...]) -> pl.DataFrame:
    frame = pl.DataFrame(dict(zip(("start", "end", "user", "n"), answer, strict=True)))
    return frame.with_columns(pl.col("start", "end").cast(pl.Datetime("us")))


@numba.njit(cache=True)
def hopping_count(times, keys, key_count, size, hop):  # type: ignore[no-untyped-def]
    """Return start, end, key and count of each stretch between two changes of a key's count.

    Two cursors walk over the same events: one where they enter, one where they leave, `size` later. At each
    hop the touched keys end their open row and begin a new one.
    """
    n = len(times)
    counts = np.zeros(key_count, np.int64)
    touched_at = np.full(key_count, -1, np.int64)
    open_row = np.full(key_count, -1, np.int64)
    touched = np.empty(key_count, np.int64)
    starts, ends = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    row_keys, row_counts = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    rows = entering = leaving = instant = 0
    while leaving < n:
        now = times[leaving] // hop * hop + hop + size
        if entering < n:
            now = min(now, times[entering] // hop * hop + hop)
        instant += 1
        size_touched = 0
        while entering < n and times[entering] < now:
            key = keys[entering]
            if touched_at[key] != instant:
                touched_at[key] = instant
                touched[size_touched] = key
                size_touched += 1
            counts[key] += 1
            entering += 1
        while leaving < entering and times[leaving] < now - size:
            key = keys[leaving]
            if touched_at[key] != instant:
                touched_at[key] = instant
                touched[size_touched] = key
                size_touched += 1
            counts[key] -= 1
            leaving += 1
        for i in range(size_touched):
            key = touched[i]
            if open_row[key] >= 0:
                ends[open_row[key]] = now
                open_row[key] = -1
            if counts[key] > 0:
                starts[rows] = now
                row_keys[rows] = key
                row_counts[rows] = counts[key]
                open_row[key] = rows
                rows += 1
    return starts[:rows], ends[:rows], row_keys[:rows], row_counts[:rows]
