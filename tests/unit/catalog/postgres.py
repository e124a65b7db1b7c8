"""A PostgreSQL server of one's own: Debian's programs, a temporary folder, a free port, an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["missing", "server"]


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return found[-1].parent if found else None


def _user() -> str | None:
    """The user to run it: ourselves, unless we are root, under whom it does not start."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def missing() -> str | None:
    """Return why there can be no server, or None."""
    if _programs() is None:
        return "there is no PostgreSQL below /usr/lib/postgresql"
    return None if _user() is not None else "there is no unprivileged user to run PostgreSQL"


@contextmanager
def server() -> Iterator[str]:
    """Give the URL of a fresh database while in context."""
    programs, user = _programs(), _user()
    assert programs is not None
    assert user is not None
    # Not below pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="squill-postgres-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    as_user: dict[str, Any] = (
        {} if os.geteuid() != 0 else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    )
    if as_user:
        shutil.chown(folder, user)
    control = [str(programs / "pg_ctl"), "-D", str(folder / "data"), "-w", "-s"]

    def run(*command: str) -> None:
        with (folder / "output").open("w") as output:
            code = subprocess.call(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, **as_user)
        assert code == 0, (folder / "output").read_text()

    try:
        run(str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "squill", "-N", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        run(*control, "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://squill@127.0.0.1:{port}/postgres"
        finally:
            run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
