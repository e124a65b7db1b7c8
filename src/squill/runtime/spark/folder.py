"""The folder of one run: everything a run writes is in it, and it goes when the run ends, however it ends."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

__all__ = ["RunFolder"]

TRIES = 20
PAUSE_SECONDS = 0.1


class RunFolder:
    """A fresh folder below `base` while in context. Attempts that outlive it cannot bring it back."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def __enter__(self) -> Path:
        self._base.mkdir(parents=True, exist_ok=True)
        self._path = Path(tempfile.mkdtemp(prefix="squill-run-", dir=self._base))
        return self._path

    def __exit__(self, *error: object) -> None:
        # A task that Spark is still killing may add a file meanwhile, so that the folder is not empty.
        for _ in range(TRIES):
            shutil.rmtree(self._path, ignore_errors=True)
            if not self._path.exists():
                return
            time.sleep(PAUSE_SECONDS)
        shutil.rmtree(self._path)
