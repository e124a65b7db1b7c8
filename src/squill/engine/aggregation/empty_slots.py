"""Slots with nothing alive, so that a key that is gone keeps no state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.aggregation.schedule import Deltas, Schedule
from squill.engine.kernels.cells import empty_slots, still_empty

__all__ = ["EmptySlots"]


class EmptySlots:
    """Collects the slots that finished cells left empty, until the rows at hand are all worked through.

    A slot may be empty after one instant and alive again after the next of the same batch, perhaps several
    times: only what is empty in the end counts, and counts once.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._found: list[npt.NDArray[np.int32]] = []

    def collect(self, deltas: Deltas) -> None:
        if not deltas.cells:
            return
        out = np.empty(deltas.cells, np.int32)
        count = empty_slots(
            deltas.cell_slot, deltas.cell_alive, deltas.cells, self._schedule.slots, self._schedule.open_serial, out
        )
        if count:
            self._found.append(out[:count])

    def take(self) -> npt.NDArray[Any]:
        """Return the slots that are empty now, each once, and forget them."""
        if not self._found:
            return np.empty(0, np.int32)
        found = np.concatenate(self._found)
        self._found = []
        out = np.empty(len(found), np.int32)
        return out[: still_empty(found, self._schedule.slots, out)]
