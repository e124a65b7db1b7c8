"""Hidden names for what is being written, and what writers that are no more have left under them.

The name tells the host and the process. Who writes to the same place next, on that host, removes what is left of
processes that are gone; nobody else can know that they are.
"""

from __future__ import annotations

import glob
import os
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["hidden_beside", "left_behind"]


def hidden_beside(target: Path, token: str, suffix: str) -> Path:
    """Return the name under which this process writes what is to be called `target`."""
    return target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}.{token}{suffix}")


def left_behind(target: Path, suffix: str) -> Iterator[Path]:
    """Yield what processes of this host that are no more have left beside the target; tokens have no dot."""
    prefix = f".{target.name}.{socket.gethostname()}."
    for path in target.parent.glob(f"{glob.escape(prefix)}*{suffix}"):
        pid = path.name.removeprefix(prefix).partition(".")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            yield path
