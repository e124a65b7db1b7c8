"""How much memory this process holds, as the system counts it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

__all__ = ["resident_bytes"]


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory, after what nobody refers to has gone."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
