"""What the machine itself gives a second thread: two bare loops at once, which share nothing, beside one.

Both do what a grouped query does most of the time: look keys, of which some come often, up in a table of 32 MB. There
are no batches, no exchange and no Python in them, so that what they gain is about what two threads of ours could.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.cluster import tables
from benchmarks.cluster.hopping import FAMILY
from benchmarks.harness import Comparison, Experiment, Side

__all__ = ["LOOPS", "experiments"]

LOOPS = "local threads: bare loops over memory, apart"
TABLE_WORDS = 1 << 22
PASSES = 10
Array = npt.NDArray[Any]


def experiments() -> list[Experiment]:
    sides = (
        Side(name="2 loops", prepare=partial(_prepare, 2), rows=_rows, peer=False, copies=2),
        Side(name="1 loop", prepare=partial(_prepare, 1), rows=_rows, peer=False),
    )
    return [Comparison(family=FAMILY, name=LOOPS, data=tables.clicks, sides=sides)]


def _prepare(loops: int, folder: Path) -> Callable[[], Array]:
    keys = pl.read_parquet(folder / "*.parquet", columns=["user"])["user"].to_numpy().astype(np.uint64)
    # A copy of the keys for each, and a table: they are to share nothing.
    shares = [(keys.copy(), np.zeros(TABLE_WORDS, np.int64)) for _ in range(loops)]

    def run() -> Array:
        with ThreadPoolExecutor(loops) as threads:
            list(threads.map(lambda share: _count(*share), shares))
        return shares[0][1]

    return run


def _rows(table: Array) -> pl.DataFrame:
    return pl.DataFrame({"counted": [int(table.sum())]})


@numba.njit(nogil=True)
def _count(keys: Array, table: Array) -> None:
    mask = np.uint64(len(table) - 1)
    for turn in range(PASSES):
        for i in range(len(keys)):
            h = (keys[i] + np.uint64(turn)) * np.uint64(0x9E3779B97F4A7C15)
            h = (h ^ h >> np.uint64(32)) * np.uint64(0xBF58476D1CE4E5B9)
            table[(h ^ h >> np.uint64(29)) & mask] += 1
