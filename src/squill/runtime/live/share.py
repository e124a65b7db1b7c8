"""How much memory the states of live shards may take in one process."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from squill.errors import PlanError
from squill.wording import shortened

__all__ = ["checked_memory", "default_memory"]

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says how much memory it may have."""


def default_memory(processes: int = 1) -> int:
    """Return half of this machine's memory, or of the container's, shared by so many processes: rows need room, too."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in LIMITS:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return total // 2 // max(1, processes)


def checked_memory(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given > 0):
        return given
    raise PlanError(
        f"start: memory is {shortened(given)}", "give a number of bytes, such as 2 * 1024**3, or leave it out."
    )
