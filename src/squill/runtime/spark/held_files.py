"""Files that a task has read, held open for a moment longer than it runs.

The system lets go of a file's pages when the file is removed and nobody has it open any more: 30 ms for two of 340 MB,
for which the driver would have to wait at the end of a run. So a task keeps what it reads open until after the driver
has removed it. The name is gone then, and the pages go with the last who closes the file, while the next run begins.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

__all__ = ["HeldFiles"]

MOST_FILES = 64
"""Files of more producers are smaller, and a process may not have many open."""
AFTER_SECONDS = 0.25
"""By then the driver has heard that the task is over, and has removed what nobody reads any more."""


class HeldFiles:
    """The files of one task.

    Examples
    --------
    >>> files = HeldFiles()
    >>> files.hold(__file__)
    >>> files.close_later(0.0).join()
    >>> files.are_open
    False
    """

    def __init__(self) -> None:
        self._open: list[int] = []
        self._lock = threading.Lock()

    @property
    def are_open(self) -> bool:
        return bool(self._open)

    def hold(self, path: str) -> None:
        """Hold a file that exists; who reads it says what is wrong if it does not."""
        with self._lock, suppress(OSError):
            if len(self._open) < MOST_FILES:
                self._open.append(os.open(path, os.O_RDONLY))

    def close_later(self, seconds: float = AFTER_SECONDS) -> threading.Timer:
        """Close the files when the task is over; a worker that ends before closes them by that."""
        closing = threading.Timer(seconds, self._close)
        closing.daemon = True
        closing.start()
        return closing

    def _close(self) -> None:
        with self._lock:
            while self._open:
                os.close(self._open.pop())
