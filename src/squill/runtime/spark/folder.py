"""The folder of one run: everything a run writes is in it, and it goes when the run ends, however it ends."""

from __future__ import annotations

import tempfile
from pathlib import Path

from squill.runtime.removal import remove_folder

__all__ = ["RunFolder"]


class RunFolder:
    """A fresh folder below `base` while in context. Attempts that outlive it cannot bring it back."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def __enter__(self) -> Path:
        self._base.mkdir(parents=True, exist_ok=True)
        self._path = Path(tempfile.mkdtemp(prefix="squill-run-", dir=self._base))
        return self._path

    def __exit__(self, *error: object) -> None:
        remove_folder(self._path)
