"""Whether the driver of a run lives: it holds a lock, which the system takes from it when it dies."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

__all__ = ["DriverLock"]


class DriverLock:
    """A lock on a file, of this process; `take` gives None when another driver, also of this process, has it."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    @classmethod
    def take(cls, path: Path) -> DriverLock | None:
        """Take the lock, without waiting."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(handle)
                return None
            # A filesystem without locks: nothing is known then, and the run is not to fail for it.
        except BaseException:
            os.close(handle)
            raise
        return cls(handle)

    def release(self) -> None:
        """Let it go; later calls do nothing."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
