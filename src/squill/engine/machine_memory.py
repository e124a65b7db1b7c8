"""How much memory there is for this process and its like, and what part of it one operator's state may take."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["MEMORY_ENVIRONMENT_VARIABLE", "machine_memory", "one_of", "sharing", "state_share"]

MEMORY_ENVIRONMENT_VARIABLE = "SQUILL_MEMORY"
"""Says how many bytes Squill's processes on this machine may take together, where that is less than there are."""

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says how much memory it may have."""

STATE_PART = 8
"""A state that says it is an eighth of the memory may take a fourth, as its arrays have room to grow, and is there
twice while it is divided; and rows need room too."""


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container, or what the environment says.

    Examples
    --------
    >>> machine_memory() > 0
    True
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in LIMITS:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    with suppress(ValueError):
        total = min(total, max(1, int(os.environ.get(MEMORY_ENVIRONMENT_VARIABLE, ""))))
    return total


class _Sharers:
    """Who shares the memory: processes of this kind on the machine, and shards in this one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes = 1
        self.shards = 0


_sharers = _Sharers()


def one_of(processes: int) -> None:
    """Take note that this is one of so many processes on the machine that run shards, one shard each."""
    _sharers.processes = processes


@contextmanager
def sharing(shards: int) -> Iterator[None]:
    """Divide the memory by so many shards more, as long as they run."""
    with _sharers.lock:
        _sharers.shards += shards
    try:
        yield
    finally:
        with _sharers.lock:
            _sharers.shards -= shards


def state_share() -> int:
    """Return how many bytes the state of one operator may take now, before it is worked off in parts.

    A process may be given less address space than there is memory, as Spark does where
    `spark.executor.pyspark.memory` is set; that limit is the process's own.

    Examples
    --------
    >>> with sharing(2):
    ...     half = state_share()
    >>> state_share() >= 2 * half
    True
    """
    shares = machine_memory() // max(_sharers.processes, _sharers.shards, 1)
    limit = _address_space()
    if limit is not None:
        shares = min(shares, limit // max(_sharers.shards, 1))
    return shares // STATE_PART


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # not on this system
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
