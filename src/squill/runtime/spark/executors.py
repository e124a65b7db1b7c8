"""What the executors have: their Python and the packages that tasks need, beside the driver's."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from squill.errors import ClusterError

__all__ = ["check_executors"]

PACKAGES = ("squill", "polars", "pyarrow", "numpy", "numba", "cloudpickle")
EXACT = ("squill", "polars", "numpy", "cloudpickle")
"""Plans are pickles, and expressions are in Polars' own form: these must be of one version everywhere."""


def check_executors(session: Any, tasks: int) -> str:
    """Return a table of what the executors have; raise when tasks could not run there."""
    # Pickled by value: an executor without the package must be able to say so.
    found = session.range(0, tasks, 1, tasks).mapInArrow(_report(PACKAGES), "host string, name string, version string")
    lines = {(row["host"], row["name"]): row["version"] for row in found.toArrow().to_pylist()}
    mine = versions(PACKAGES)
    problems = [
        f"{host}: {name} is {version or 'missing'}, the driver has {mine[name]}"
        for (host, name), version in sorted(lines.items())
        if _differs(name, version, mine[name])
    ]
    if problems:
        wanted = " ".join(f"{name}=={mine[name]}" for name in PACKAGES)
        raise ClusterError(
            "check: the executors cannot run tasks: " + "; ".join(problems),
            f"install the driver's versions there, with Python {mine['python']}: pip install {wanted}",
        )
    hosts = sorted({host for host, _ in lines})
    shown = ", ".join(f"{name} {version}" for name, version in mine.items())
    return f"{len(hosts)} host{'s' if len(hosts) != 1 else ''} ({', '.join(hosts)}): {shown}"


def _differs(name: str, there: str, here: str) -> bool:
    if name == "python":  # bytecode of one minor version cannot be read by another
        return there.split(".")[:2] != here.split(".")[:2]
    return not there or (name in EXACT and there != here)


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of packages here; empty where one is missing."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def _report(packages: tuple[str, ...]) -> Any:
    """Return the function of the task; it stands alone, so that it is sent whole."""

    def report(batches: Iterator[Any]) -> Iterator[Any]:
        import platform
        import socket
        from importlib import metadata

        import pyarrow as pa

        def version(name: str) -> str:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return ""

        for _ in batches:
            found = {"python": platform.python_version(), **{name: version(name) for name in packages}}
            yield pa.RecordBatch.from_pydict(
                {"host": [socket.gethostname()] * len(found), "name": list(found), "version": list(found.values())}
            )

    # Functions of a module are pickled by name, and its name is what may be missing there.
    report.__module__ = "__main__"
    return report
