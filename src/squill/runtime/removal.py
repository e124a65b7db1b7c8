"""Folders removed while somebody may still be writing into them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

__all__ = ["remove_folder"]

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
