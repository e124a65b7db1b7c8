"""What was read of a file, kept for as long as the file is the same one.

A query asks every file for its columns and its row groups before it reads a row: 0.4 and 0.3 ms each, so that the
second query over a thousand files would again be most of a second late.

A file is taken for the same while its place on the disk, its size and its times are. Times move in steps, of 4 ms or of
two seconds, so nothing is kept of a file that was changed a moment ago: it could change once more without its time.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from squill.plan.paths import is_local

__all__ = ["KeptByFile"]

T = TypeVar("T")
Version = tuple[int, ...]

SETTLED = 3.0
"""So many seconds after its last change a file is known by its times; the coarsest count in steps of two."""


class KeptByFile(Generic[T]):
    """A function of a file's path that reads no file twice; of files that are not local nothing is kept, nor is None.

    ``room``    what is kept weighs no more than this together; what was not asked for longest is forgotten first.
    ``weight``  of what was read of one file.

    Examples
    --------
    >>> from pathlib import Path
    >>> first_line = KeptByFile(lambda path: Path(path).read_text().splitlines()[0], room=100)
    >>> first_line(__file__) == first_line(__file__)
    True
    """

    def __init__(self, read: Callable[[str], T], room: int, weight: Callable[[T], int] = lambda _: 1) -> None:
        self._read = read
        self._room = room
        self._weight = weight
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[Version, T, int]] = OrderedDict()  # those asked for last at the end
        self._used = 0

    def __call__(self, path: str) -> T:
        version = _version(path) if is_local(path) else None
        if version is None:
            return self._read(path)
        # A path that is not whole means another file after a change of folder.
        name = os.path.abspath(path)  # noqa: PTH100  (called for every file)
        with self._lock:
            known = self._known.get(name)
            if known is not None and known[0] == version:
                self._known.move_to_end(name)
                return known[1]
        found = self._read(path)
        # Who changes the file meanwhile changes its version too. None may be for a reason that passes.
        if found is not None and _version(path) == version:
            self._keep(name, version, found)
        return found

    def _keep(self, name: str, version: Version, found: T) -> None:
        weight = self._weight(found)
        with self._lock:
            self._forget(name)
            self._known[name] = version, found, weight
            self._used += weight
            while self._used > self._room:
                self._forget(next(iter(self._known)))

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        self._used -= 0 if known is None else known[2]


def _version(path: str) -> Version | None:
    """Return what tells a file from another one, and from itself after a change; None where that is not certain."""
    try:
        # Of an open file the times are those of now, also where they come over a network.
        handle = os.open(path, os.O_RDONLY)
    except (OSError, ValueError):
        return None  # who reads it says what is wrong
    try:
        found = os.fstat(handle)
    finally:
        os.close(handle)
    changed = max(found.st_mtime, found.st_ctime)
    if not changed <= time.time() - SETTLED:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
