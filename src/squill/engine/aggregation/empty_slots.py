"""Slots with nothing alive, so that a key that is gone keeps no state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aggregation.schedule import Deltas, Schedule
from squill.engine.kernels.cells import EMPTIED, empty_slots, still_empty
from squill.engine.kernels.schedule import STAMP

__all__ = ["EmptySlots"]


class EmptySlots:
    """Collects the slots that finished cells left empty, until the rows at hand are all worked through.

    A slot may be empty after one instant and alive again after the next of the same batch, perhaps several
    times: only what is empty in the end counts, and counts once.
    ``kept``  how many may be left where they are, as their keys may soon come again.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.kept = 0
        self._found: list[npt.NDArray[np.int32]] = []
        self._times = 0

    def collect(self, deltas: Deltas) -> None:
        if not deltas.cells:
            return
        out = np.empty(deltas.cells, np.int32)
        count = empty_slots(
            deltas.cell_slot, deltas.cell_alive, deltas.cells, self._schedule.slots, self._schedule.open_serial, out
        )
        if count:
            self._found.append(out[:count])
            self._times += count

    @property
    def are_many(self) -> bool:
        """Whether slots have become empty more often than may be left so."""
        return self._times > self.kept

    @property
    def count(self) -> int:
        """How many slots are empty and have not been taken."""
        if not self._found:
            return 0
        return int(np.count_nonzero(self._schedule.slots[np.unique(np.concatenate(self._found)), STAMP] == EMPTIED))

    def take(self) -> npt.NDArray[Any]:
        """Return the slots that are empty now, each once, and forget them."""
        if not self._found:
            return np.empty(0, np.int32)
        found = np.concatenate(self._found)
        self._found, self._times = [], 0
        out = np.empty(len(found), np.int32)
        return out[: still_empty(found, self._schedule.slots, out)]
