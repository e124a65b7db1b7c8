"""How the memory of a process that runs shards is given out and taken back.

glibc gives back to the system what is free at the end of a heap, from some megabytes on, and whole heaps of threads.
Pages for the next arrays then have to be cleared when they are first written to: 110,000 of them in a sum over 10 M
rows on two threads, at 1 to 3 µs each. With a higher limit, and few heaps, there are 50,000.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

from squill.polars_memory import KEEP_ENVIRONMENT_VARIABLE

__all__ = ["KEPT", "keep_freed_memory"]

# Of malloc.h: from which size on an array is given pages of its own, how much that is free at the end of the heap is
# kept, and how many heaps there are.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
OWN_PAGES = 32 << 20  # what the limit grows to by itself, and the highest that is taken
KEPT = 256 << 20
HEAPS = 2


@cache
def keep_freed_memory() -> bool:
    """Let freed memory serve the next batches; False where the allocator is another one, or is to be left alone.

    Up to 256 MB that are free stay with the process.
    """
    if os.environ.get(KEEP_ENVIRONMENT_VARIABLE) == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    return all(
        mallopt(what, value) == 1
        for what, value in ((M_MMAP_THRESHOLD, OWN_PAGES), (M_TRIM_THRESHOLD, KEPT), (M_ARENA_MAX, HEAPS))
    )
