"""How much memory the states of live shards may take in one process."""

from __future__ import annotations

from squill.engine.machine_memory import machine_memory
from squill.errors import PlanError
from squill.wording import shortened

__all__ = ["checked_memory", "default_memory"]


def default_memory(processes: int = 1) -> int:
    """Return half of this machine's memory, or of the container's, shared by so many processes: rows need room, too."""
    return machine_memory() // 2 // max(1, processes)


def checked_memory(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given > 0):
        return given
    raise PlanError(
        f"start: memory is {shortened(given)}", "give a number of bytes, such as 2 * 1024**3, or leave it out."
    )
