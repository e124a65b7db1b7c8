"""Rows and states put aside by parts of their keys, so that one part after the other can be worked off.

What does not fit into memory at once is divided by the upper bits of the keys' hash: placements and tables go by the
lower ones. Each part holds all of its keys' rows, so it is worked off by itself; one that is still too large is
divided again, by the next bits.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from squill.engine.batch import Batch
from squill.engine.belongs import Belongs
from squill.engine.columns import read_only
from squill.engine.hashing import hash_columns
from squill.engine.kernels.lookup import group_by_slot
from squill.engine.operator import Operator
from squill.engine.rows_on_disk import RowsOnDisk, mapped_file
from squill.errors import BudgetExceededError

__all__ = [
    "MOST_DEPTH",
    "PARTS",
    "OfPart",
    "Parts",
    "free_cycles",
    "in_place_of",
    "rows_bytes",
    "stand_in",
    "state_bytes",
]

BITS = 4
PARTS = 1 << BITS
MOST_DEPTH = 6
"""So often parts are divided again; what is too large then has very few keys."""
HELD_BYTES = 64 * 1024 * 1024
"""How much of the rows waits in memory to be written together."""
MUCH_BYTES = 128 * 1024 * 1024
"""Once so much was let go it is worth a tenth of a second to see that it is free."""
BYTES_BESIDE = 64
"""What a row may take in tables of keys, beside its own bytes."""


@dataclass(frozen=True)
class OfPart(Belongs):
    """The rows of one part, `shard`; at each depth other bits tell.

    Examples
    --------
    >>> keys = {"k": pl.Series(range(100))}
    >>> sum(OfPart(("k",), part, PARTS, 0)(keys).sum() for part in range(PARTS))
    np.int64(100)
    """

    depth: int

    def __call__(self, columns: Mapping[str, pl.Series]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = _parts_of([columns[key] for key in self.keys], self.depth) == self.shard
        return found


def _parts_of(keys: Sequence[pl.Series], depth: int) -> npt.NDArray[np.int32]:
    shift = np.uint64(64 - BITS * (depth + 1))
    return ((hash_columns(keys) >> shift) & np.uint64(PARTS - 1)).astype(np.int32)


def rows_bytes(batch: Batch) -> int:
    """Return about how much memory an operator may need for each of these rows, each with a key of its own."""
    columns = sum(int(series.estimated_size()) for series in batch.columns.values())
    return 2 * columns + BYTES_BESIDE * len(batch)


def state_bytes(state: object) -> int:
    """Return how much memory a saved state takes.

    Examples
    --------
    >>> state_bytes({"slots": np.zeros(4, np.int64), "more": [pl.Series([1, 2])]})
    48
    """
    match state:
        case np.ndarray():
            return state.nbytes
        case pl.Series() | pl.DataFrame():
            return int(state.estimated_size())
        case Batch():
            return sum(int(series.estimated_size()) for series in state.columns.values())
        case dict():
            return sum(map(state_bytes, state.values()))
        case list() | tuple():
            return sum(map(state_bytes, state))
    return 0


def free_cycles(let_go: int) -> bool:
    """Look for what refers to itself where much was let go; of the arrays it holds Python's own looks know nothing."""
    if let_go <= MUCH_BYTES:
        return False
    gc.collect()
    return True


class Relay(Operator):
    """Hands rows on as its owner's, and keeps time to itself: the owner's parts end one after the other."""

    def __init__(self, owner: Operator) -> None:
        super().__init__(owner.node)
        self._owner = owner

    def push(self, batch: Batch, port: int = 0) -> None:
        self._owner.emit(batch)

    def advance(self, t: int, port: int = 0) -> None:
        pass


def stand_in(owner: Operator, one: Operator) -> Operator:
    """Let `one` give its rows as its owner's, as they are asked of that one; return it."""
    one.consumers = [(Relay(owner), 0)]
    one.demand = owner.demand
    one.checkpoint = owner.checkpoint
    return one


@contextmanager
def in_place_of(owner: Operator, one: Operator) -> Iterator[None]:
    """Let `one` stand in for its owner; in the end, or when an error ends it, it lets go of its own parts."""
    stand_in(owner, one)
    try:
        yield
    finally:
        one.let_go()


class Parts:
    """`PARTS` parts of the rows of so many `inputs`, at one depth."""

    def __init__(self, depth: int, inputs: int = 1) -> None:
        self.depth = depth
        self._files: list[list[list[RowsOnDisk]]] = [[[] for _ in range(PARTS)] for _ in range(inputs)]
        self._held: list[list[list[Batch]]] = [[[] for _ in range(PARTS)] for _ in range(inputs)]
        self._held_bytes = 0
        self._bytes = [0] * PARTS
        self._forgotten = 0
        self._states: list[pa.Buffer | None] = [None] * PARTS
        self.rows = 0

    def add(self, batch: Batch, keys: Sequence[str], port: int = 0) -> None:
        """Take rows of one input, by these columns."""
        starts = np.zeros(PARTS + 1, np.int64)
        order = np.empty(len(batch), np.int64)
        group_by_slot(read_only(_parts_of([batch.columns[name] for name in keys], self.depth)), starts, order)
        in_order = batch.take(order)
        for part, (low, high) in enumerate(pairwise(starts.tolist())):
            if high > low:
                rows = in_order.slice(low, high)
                self._held[port][part].append(rows)
                self._bytes[part] += rows_bytes(rows)
                self._held_bytes += rows_bytes(rows)
        self.rows += len(batch)
        if self._held_bytes > HELD_BYTES:
            self._write_held()

    def _write_held(self) -> None:
        for port, parts in enumerate(self._held):
            for part, held in enumerate(parts):
                if held:
                    with _room_on_disk():
                        self._files[port][part].append(RowsOnDisk(Batch.concat(held)))
        self._held = [[[] for _ in parts] for parts in self._held]
        self._held_bytes = 0

    def put_state(self, part: int, state: object) -> None:
        with _room_on_disk():
            self._states[part] = mapped_file(lambda file: pickle.dump(state, file, protocol=5))
        self._bytes[part] += state_bytes(state)

    def state(self, part: int) -> Any:
        """Return what was put aside for a part, or None."""
        file = self._states[part]
        return None if file is None else pickle.loads(file)  # noqa: S301  (written by this object)

    def rows_of(self, part: int, port: int = 0) -> Iterator[Batch]:
        """Yield the rows of an input in the order in which they came."""
        for file in self._files[port][part]:
            yield file.restored(file.batch)
        yield from self._held[port][part]

    def forget(self, part: int) -> None:
        """Let go of a part that has been worked off, and of what it took in memory."""
        for files, held in zip(self._files, self._held, strict=True):
            # The lists themselves: the frames of an error go on to refer to them.
            files[part].clear()
            held[part].clear()
        self._states[part] = None
        self._forgotten += self._bytes[part]
        self._bytes[part] = 0
        if free_cycles(self._forgotten):
            self._forgotten = 0

    def close(self) -> None:
        """Let go of what is on disk."""
        for part in range(PARTS):
            self.forget(part)


@contextmanager
def _room_on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BudgetExceededError(
            "the keys of a group or join take more than a shard's share of the memory, and what is beyond cannot be "
            f"written to the temporary folder: {error.strerror or error}",
            "make room there, name another one (the variable TMPDIR), or use more shards, which have fewer keys each.",
        ) from error
