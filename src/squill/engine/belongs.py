"""Which rows belong to a shard, and numbers that are given anew when the others are forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from squill.engine.buffers import grown
from squill.engine.hashing import hash_columns

__all__ = ["Belongs", "along_chains", "at_slots", "renumbered_chains", "renumbering"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Belongs:
    """The rows that a movement by these keys brings to one of so many shards.

    Examples
    --------
    >>> first = Belongs(("k",), 0, 2)
    >>> first({"k": pl.Series([7, 8, 9])})
    array([False,  True,  True])
    """

    keys: tuple[str, ...]
    shard: int
    shards: int

    def __call__(self, columns: Mapping[str, pl.Series]) -> npt.NDArray[np.bool_]:
        hashes = hash_columns([columns[key] for key in self.keys])
        found: npt.NDArray[np.bool_] = hashes % np.uint64(self.shards) == self.shard
        return found

    def can_ask(self, names: Collection[str]) -> bool:
        """Whether columns of these names tell."""
        return set(self.keys) <= set(names)


def renumbering(kept: Array, capacity: int) -> Array:
    """Return the new number of every old one, when `kept` are numbered from 0 on; −1 for the others.

    Examples
    --------
    >>> renumbering(np.array([1, 3]), 4)
    array([-1,  0, -1,  1])
    """
    # At least one: what was never used may be said to have the number 0.
    numbers = np.full(max(capacity, 1), -1, np.int64)
    numbers[kept] = np.arange(len(kept))
    return numbers


def renumbered_chains(ends: Array, number_of: Array) -> Array:
    """Return ends of chains, entries counted from 1 (0 is none), by the entries' new numbers."""
    return np.where(ends > 0, number_of[ends - 1] + 1, 0)


def along_chains(entries: Array, following: Array, end: int) -> Array:
    """Return the entries of the chains that begin with these; `end` is behind the last of each, and no entry.

    Examples
    --------
    >>> along_chains(np.array([2, -1, 1]), np.array([-1, -1, 0]), end=-1)
    array([2, 1, 0])
    """
    found = []
    while len(entries := entries[entries != end]):
        found.append(entries)
        entries = following[entries]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def at_slots(array: Array, kept: Array) -> Array:
    """Return an array by slot for the slots that are kept, in their order, with some room."""
    return grown(array[kept], 16)
