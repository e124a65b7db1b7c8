"""Files and folders removed while others go on: with what needs them no more, or with writing into them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

__all__ = ["FileRemoval", "remove_folder"]

TRIES = 20
PAUSE_SECONDS = 0.1


def remove_folder(path: Path) -> None:
    """Remove a folder; attempts that outlive it cannot bring it back.

    A task that does not count, and is being killed, may add or take away a file meanwhile: then the folder is not
    empty, or a file is not there, just when it is looked at.
    """
    for _ in range(TRIES):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(PAUSE_SECONDS)
    shutil.rmtree(path)


class FileRemoval:
    """Removes files beside what goes on; who leaves the context waits for the last of them.

    The system takes 25 ms to let go of the pages of 340 MB, as long as it takes to read them.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="removal")
        self._begun: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def remove(self, paths: Iterable[str]) -> None:
        """Begin to remove files; one that is not there is as good as removed."""
        self._begun += [self._pool.submit(Path(path).unlink, missing_ok=True) for path in paths]

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._pool.shutdown()
        if kind is None:
            for removal in self._begun:
                removal.result()
