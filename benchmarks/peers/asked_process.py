"""A process that answers "done" to every line it is told: a side that needs an environment of its own."""

from __future__ import annotations

import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["AskedProcess"]


class AskedProcess:
    """Runs until `close`, or until nobody has it any more; then its folder goes too."""

    def __init__(
        self,
        command: Sequence[str],
        folder: tempfile.TemporaryDirectory[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder.name)
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.close = weakref.finalize(self, _end, self._process, folder)

    def ask(self, line: str) -> None:
        """Tell it a line, and wait until that is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "done":
            raise RuntimeError(f"the process of {self._process.args} ended while it was asked to {line}")


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.communicate()
    folder.cleanup()
