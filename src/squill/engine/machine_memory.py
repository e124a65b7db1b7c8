"""How much memory there is for this process and its like."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["machine_memory"]

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says how much memory it may have."""


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container.

    Examples
    --------
    >>> machine_memory() > 0
    True
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in LIMITS:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return total
