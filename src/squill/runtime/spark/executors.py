"""What the executors have: their Python and the packages that tasks need, beside the driver's."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from squill.errors import ClusterError, ShardError
from squill.runtime.spark.jobs import MISSING, failed_without_a_word
from squill.runtime.spark.kinds import functions_of, is_one_host

__all__ = ["check_executors", "saying_what_is_missing", "versions"]

PACKAGES = ("squill", "polars", "pyarrow", "numpy", "numba", "cloudpickle")
EXACT = ("squill", "polars", "numpy", "cloudpickle")
"""Plans are pickles, and expressions are in Polars' own form: these must be of one version everywhere."""


def check_executors(session: Any, tasks: int, folder: Path | None = None) -> str:
    """Return a line on what the executors have; raise when tasks could not run there, or do not see the folder."""
    mine = versions(PACKAGES)
    try:
        with _probe_in(folder) as probe:
            # A plain function, not one of Arrow batches, which would not even start where pyarrow is missing.
            report = functions_of(session).udf(_report(PACKAGES, probe), "string", useArrow=False)
            rows = session.range(0, tasks, 1, tasks).select(report("id")).collect()
    except (PySparkException, Py4JError) as error:
        missing = MISSING.search(str(error))
        if missing is None:
            raise failed_without_a_word(error) from error
        problem = f"a worker did not start: no module named {missing.group(1)!r}"
        raise _cannot_run([problem], mine, is_here=is_one_host(session)) from error
    found = [json.loads(text) for text in sorted({row[0] for row in rows})]
    blind = sorted({host for host, _, sees_folder in found if not sees_folder})
    if blind:
        raise ClusterError(
            f"check: {', '.join(blind)} does not see a file that this process has put into the cluster's folder, "
            f"{str(folder)!r}",
            "name one that all machines share, sq.spark(…, folder=…), or none: rows move through the shuffle then.",
        )
    problems = [
        f"{host}: {name} is {version or 'missing'}, the driver has {mine[name]}"
        for host, there, _ in found
        for name, version in sorted(there.items())
        if _differs(name, version, mine[name])
    ]
    if problems:
        raise _cannot_run(problems, mine, is_here=is_one_host(session))
    hosts = sorted({host for host, _, _ in found})
    shown = ", ".join(f"{name} {version}" for name, version in mine.items())
    return f"{len(hosts)} host{'s' if len(hosts) != 1 else ''} ({', '.join(hosts)}): {shown}"


@contextmanager
def saying_what_is_missing(session: Any, tasks: int) -> Iterator[None]:
    """Look at the executors when a task failed for want of a package: one answer to all that they lack."""
    try:
        yield
    except ShardError as error:
        missing = MISSING.search(str(error.__cause__))
        if missing is not None and missing.group(1).partition(".")[0] in PACKAGES:
            check_executors(session, tasks)
        raise


def _cannot_run(problems: list[str], mine: dict[str, str], *, is_here: bool) -> ClusterError:
    # Squill itself is sent along; on the driver's own host it is what is installed that is used.
    wanted = " ".join(f"{name}=={version}" for name, version in mine.items() if name != "python")
    install = f"install the driver's versions there, with Python {mine['python']}: pip install {wanted}"
    # Unless told Spark runs the python3 that is first on the PATH, which need not be that of a virtual environment.
    same = f"let them run the driver's Python: PYSPARK_PYTHON={sys.executable} before the session starts; or "
    return ClusterError(
        "check: the executors cannot run tasks: " + "; ".join(problems), f"{same if is_here else ''}{install}"
    )


def _differs(name: str, there: str, here: str) -> bool:
    if name == "python":  # bytecode of one minor version cannot be read by another
        return there.split(".")[:2] != here.split(".")[:2]
    return not there or (name in EXACT and there != here)


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of packages here; empty where one is missing."""
    return dict(json.loads(_report(packages, None)(0))[1])


@contextmanager
def _probe_in(folder: Path | None) -> Iterator[str | None]:
    """Return the path of a file in the folder, which is there while in context."""
    if folder is None:
        yield None
        return
    try:
        handle, path = tempfile.mkstemp(prefix=".squill-check-", dir=folder)
    except OSError as error:
        raise ClusterError(
            f"check: the folder {str(folder)!r} of this cluster cannot be written to: {error.strerror}",
            "make it, or name another one: sq.spark(…, folder=…).",
        ) from error
    os.close(handle)
    try:
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def _report(packages: tuple[str, ...], probe: str | None) -> Callable[[int], str]:
    """Return the function of the task; it stands alone, so that it is sent whole. `probe` is a file to look for."""

    def report(_: int) -> str:
        import json
        import platform
        import re
        import socket
        from importlib import metadata, util
        from pathlib import Path

        def version(name: str) -> str:
            # What was sent along is not installed: its own word counts.
            spec = util.find_spec(name) if name == "squill" else None
            if spec is not None and spec.origin is not None:
                found = re.search(r'^__version__ = "(.+)"', Path(spec.origin).read_text(), re.MULTILINE)
                return found.group(1) if found else ""
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return ""

        found = {"python": platform.python_version(), **{name: version(name) for name in packages}}
        return json.dumps([socket.gethostname(), found, probe is None or Path(probe).is_file()])

    # Functions of a module are pickled by name, and its name is what may be missing there.
    report.__module__ = "__main__"
    return report
