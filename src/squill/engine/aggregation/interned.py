"""Values with ids: what stands in ordered multisets for text, for types that fit no word, and for whole rows.

Ids live as long as a holder or a waiting row has them. All rows of a push have come to the holders when the push is
over, so `Interned.settle` then releases exactly the ids that nobody holds.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl

from squill.engine.aggregation.schedule import Array
from squill.engine.belongs import at_slots, renumbering
from squill.engine.buffers import grown
from squill.engine.columns import read_only
from squill.engine.kernels import fold_order as kernels
from squill.engine.kernels.multiset_blocks import ByteStrings
from squill.engine.key_table import KeyTable
from squill.engine.operator import OperatorState
from squill.engine.owned import owned

__all__ = ["NOBODY", "Holder", "Interned"]

NOBODY = np.zeros(0, np.int64)
"""The reference counts of codes that are plain numbers."""


class Holder(Protocol):
    """What holds codes, slot by slot."""

    def held(self, slots: Array) -> Array:
        """Return the codes that these slots hold, each as often as it is counted."""

    def keep_slots(self, kept: Array, interned: Interned | None = None) -> None:
        """Forget all but these slots, of which the i-th is slot i from now on; ids have new numbers."""


class Interned:
    """Values with ids, released when nobody refers to them.

    ``holders``    all that counts references; `keep_slots` asks them.
    ``number_of``  the new number of each id, since ids were last given anew.
    """

    def __init__(self, *dtypes: pl.DataType) -> None:
        self.table = KeyTable(dtypes)
        self.references = np.zeros(16, np.int64)
        self.holders: list[Holder] = []
        self.number_of: Array = NOBODY
        self._unsettled: list[Array] = []

    def ids(self, *columns: pl.Series) -> Array:
        """Return the id of each row; without a reference it lives until `settle`."""
        ids = self.table.slots(columns)
        self.references = grown(self.references, self.table.capacity)
        self._unsettled.append(ids)
        return ids

    @property
    def strings(self) -> ByteStrings:
        lengths: Array = self.table.arena_length
        return ByteStrings(self.table.arena, self.table.arena_start, lengths)

    def note(self, ids: Array) -> None:
        """Look at these ids again when the push is over."""
        if len(ids):
            self._unsettled.append(ids)

    def settle(self) -> Array:
        """Release the ids that nobody refers to, and return them."""
        released = [NOBODY]
        for ids in self._unsettled:
            out = np.empty(len(ids), np.int64)
            count = kernels.unreferenced(read_only(ids.astype(np.int64, copy=False)), self.references, out)
            released.append(out[:count])
        self._unsettled = []
        gone = np.concatenate(released)
        if len(gone):
            self.references[gone] = 0
            self.table.release(gone)
        return gone

    def keep_slots(self, kept: Array) -> Array:
        """Let the holders forget all but these slots; return the ids that stay: the i-th is id i from now on."""
        held = np.concatenate([NOBODY, *(holder.held(kept) for holder in self.holders)])
        counts = np.bincount(held, minlength=self.table.capacity)
        ids = np.flatnonzero(counts)
        self.number_of = renumbering(ids, self.table.capacity)
        self.table.keep(ids)
        self.references = at_slots(counts, ids)
        for holder in self.holders:
            holder.keep_slots(kept, self)
        return ids

    def save(self) -> OperatorState:
        return {"table": self.table.save(), "references": self.references}

    def load(self, state: OperatorState) -> None:
        self.table.load(state["table"])
        self.references = owned(state["references"])
        self._unsettled = []
